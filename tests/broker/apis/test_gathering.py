"""Gathering: an answer is sent once, when all its parts are there, whether at once or later."""

from typing import Any, cast

from barnabas.broker.apis.gathering import Gathering
from barnabas.broker.request_channel import Outcome, Request


class Asked:
    def __init__(self) -> None:
        self.answers: list[Any] = []

    def respond(self, answer: Any) -> None:
        self.answers.append(answer)


def gathering(answer: list[int]) -> tuple[Asked, Gathering]:
    asked = Asked()
    return asked, Gathering(cast(Request, asked), answer)


def test_nothing_to_wait_for_is_an_answer_at_once() -> None:
    answer: list[int] = []
    asked, gathered = gathering(answer)
    assert gathered.outcome() is answer
    assert asked.answers == []


def test_what_is_done_before_the_outcome_is_an_answer_at_once() -> None:
    answer: list[int] = []
    asked, gathered = gathering(answer)
    gathered.expect(answer.append)(1)
    gathered.expect(answer.append)(2)
    assert gathered.outcome() is answer
    assert answer == [1, 2]
    assert asked.answers == []


def test_what_is_done_later_is_answered_when_the_last_is_done() -> None:
    answer: list[int] = []
    asked, gathered = gathering(answer)
    gathered.expect(answer.append)(1)
    second, third = gathered.expect(answer.append), gathered.expect(answer.append)
    assert gathered.outcome() is Outcome.LATER
    third(3)
    assert asked.answers == []
    second(2)
    assert asked.answers == [[1, 3, 2]]
