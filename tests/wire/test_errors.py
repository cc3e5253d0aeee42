"""The error table, against those of two clients that others wrote."""

import warnings

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode

from barnabas.wire.errors import ApiError, ErrorCode

# kafka-python has these under names of its own or of older Kafkas; the codes are the same.
NAMES_IN_KAFKA_PYTHON = {
    "INVALID_REPLICATION_ASSIGNMENT": "INVALID_REPLICA_ASSIGNMENT",
    "INVALID_TOPIC": "INVALID_TOPIC_EXCEPTION",
    "MESSAGE_SIZE_TOO_LARGE": "MESSAGE_TOO_LARGE",
    "NO_ERROR": "NONE",
    "NOT_LEADER_FOR_PARTITION": "NOT_LEADER_OR_FOLLOWER",
    "UNKNOWN": "UNKNOWN_SERVER_ERROR",
}


def test_names_and_codes_are_those_that_kio_took_from_kafka() -> None:
    assert {error.name: error.value for error in ErrorCode} == {
        error.name.upper(): error.value for error in KioErrorCode
    }


def test_names_and_codes_are_those_of_kafka_python() -> None:
    with warnings.catch_warnings():
        # It reads its own files in a way that Python 3.11 calls deprecated.
        warnings.simplefilter("ignore", DeprecationWarning)
        from kafka.errors import kafka_errors
    theirs = {code: error.message for code, error in kafka_errors.items() if code is not None}
    assert len(theirs) > 100
    assert {code: ErrorCode(code).name for code in theirs} == {
        code: NAMES_IN_KAFKA_PYTHON.get(name, name) for code, name in theirs.items()
    }


def test_codes_have_no_gaps() -> None:
    assert sorted(ErrorCode) == list(range(-1, len(ErrorCode) - 1))


@pytest.mark.parametrize("code", ErrorCode, ids=lambda code: code.name)
def test_a_code_fits_into_the_two_bytes_of_the_wire(code: ErrorCode) -> None:
    assert int.from_bytes(int(code).to_bytes(2, "big", signed=True), "big", signed=True) == code


def test_an_api_error_carries_its_code_and_says_both() -> None:
    error = ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, "offset 7 is above 5")
    assert error.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert error.message == "offset 7 is above 5"
    assert str(error) == "OFFSET_OUT_OF_RANGE: offset 7 is above 5"
