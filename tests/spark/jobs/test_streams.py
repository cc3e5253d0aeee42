"""How a query is waited for."""

import os
import signal
from unittest.mock import MagicMock

import pytest

from barnabas.spark.errors import PipelineError
from barnabas.spark.jobs.streams import run_to_the_end


def query(*answers: object) -> MagicMock:
    made = MagicMock(isActive=True)
    made.awaitTermination.side_effect = answers
    return made


def test_a_query_is_looked_at_until_it_ends() -> None:
    looks: list[int] = []
    run_to_the_end(query(False, False, True), lambda: looks.append(1), is_endless=False)
    assert len(looks) == 3


def test_only_an_endless_query_is_interrupted_in_peace() -> None:
    endless, other = query(False, KeyboardInterrupt()), query(False, KeyboardInterrupt())
    run_to_the_end(endless, lambda: None, is_endless=True)
    with pytest.raises(KeyboardInterrupt):
        run_to_the_end(other, lambda: None, is_endless=False)
    endless.stop.assert_called_once()
    other.stop.assert_called_once()


def test_an_interrupt_waits_for_the_answer_of_java() -> None:
    """Raised in the middle of it, it would leave a connection on which the query can not be stopped."""
    before = signal.getsignal(signal.SIGINT)
    answered = []

    def answer(_: float) -> bool:
        os.kill(os.getpid(), signal.SIGINT)
        answered.append(True)
        return False

    interrupted = MagicMock(isActive=True)
    interrupted.awaitTermination.side_effect = answer
    run_to_the_end(interrupted, lambda: None, is_endless=True)
    assert answered == [True]
    interrupted.stop.assert_called_once()
    assert signal.getsignal(signal.SIGINT) is before


def test_our_sentence_is_what_is_raised() -> None:
    with pytest.raises(PipelineError, match=r"^no topic$"):
        run_to_the_end(query(RuntimeError("barnabas.spark.errors.PipelineError: no topic")), print, is_endless=False)
    with pytest.raises(KeyError):
        run_to_the_end(query(KeyError("x")), print, is_endless=False)
