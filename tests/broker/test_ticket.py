"""Ticket: an answer that is there at once, later, or refused."""

from typing import Any, cast

from barnabas.broker.request_channel import Outcome, Request
from barnabas.broker.ticket import Ticket
from barnabas.wire.apis import APIS
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.groups import HeartbeatRequest, HeartbeatResponse


class FakeRequest:
    """Notes what it is answered."""

    api = APIS[12]
    version = 4

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.errors: list[int] = []
        self.is_answered = False

    def respond(self, message: Any) -> None:
        self.answers.append(message)
        self.is_answered = True

    def count_error(self, code: int) -> None:
        self.errors.append(code)


def ticket() -> tuple[FakeRequest, Ticket]:
    request = FakeRequest()
    return request, Ticket(cast(Request, request), HeartbeatRequest(group_id="g"))


def test_an_answer_that_is_there_at_once_is_what_the_handler_returns() -> None:
    request, one = ticket()
    answer = HeartbeatResponse()
    one.answer(answer)
    assert one.outcome() is answer
    assert request.answers == []


def test_an_answer_that_comes_later_is_sent_then() -> None:
    request, one = ticket()
    assert one.outcome() is Outcome.LATER
    answer = HeartbeatResponse()
    one.answer(answer)
    assert request.answers == [answer]


def test_a_second_answer_is_dropped() -> None:
    request, one = ticket()
    one.outcome()
    one.answer(HeartbeatResponse())
    one.answer(HeartbeatResponse(error_code=5))
    assert len(request.answers) == 1


def test_a_refusal_is_in_the_words_of_the_request_and_is_counted() -> None:
    request, one = ticket()
    one.refuse(ApiError(ErrorCode.NOT_COORDINATOR, "elsewhere"))
    assert one.outcome() == HeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR)
    assert request.errors == [ErrorCode.NOT_COORDINATOR]
