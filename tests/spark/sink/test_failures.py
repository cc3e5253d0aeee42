"""Errors of the client as sentences."""

import pytest

from barnabas.client.answers import error_of
from barnabas.client.connection import ClientError
from barnabas.spark.errors import PipelineError
from barnabas.spark.sink.failures import told_as_pipeline_errors
from barnabas.wire.errors import ErrorCode


def test_an_error_becomes_one_line_that_says_what_was_done() -> None:
    with pytest.raises(PipelineError) as raised, told_as_pipeline_errors("writing"):
        raise ClientError("one\n  two")
    assert str(raised.value) == "writing failed: one two"


def test_a_known_error_says_what_can_be_done() -> None:
    sentence = r"transaction\.max\.timeout\.ms is less than the option"
    with pytest.raises(PipelineError, match=sentence), told_as_pipeline_errors("writing"):
        raise error_of(ErrorCode.INVALID_TRANSACTION_TIMEOUT, "beginning")


def test_other_errors_pass() -> None:
    with pytest.raises(ValueError, match="ours"), told_as_pipeline_errors("writing"):
        raise ValueError("ours")
