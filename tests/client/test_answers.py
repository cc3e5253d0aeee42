"""Error codes as exceptions."""

import pytest

from barnabas.client.answers import check_answer, error_of, is_retriable
from barnabas.wire.errors import ApiError, ErrorCode


def test_an_error_has_its_code_what_it_is_about_and_the_brokers_words() -> None:
    error = error_of(36, "'orders'", "Topic 'orders' already exists.")
    assert error.code is ErrorCode.TOPIC_ALREADY_EXISTS
    assert str(error) == "TOPIC_ALREADY_EXISTS: 'orders': Topic 'orders' already exists."


def test_a_code_from_the_future_keeps_its_number() -> None:
    error = error_of(999, "fetching", "new words")
    assert error.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert str(error) == "UNKNOWN_SERVER_ERROR: fetching (error code 999: new words)"
    assert "(error code 998)" in str(error_of(998, "fetching"))


def test_no_error_is_no_exception() -> None:
    check_answer(0, "fine")
    with pytest.raises(ApiError, match="INVALID_CONFIG"):
        check_answer(40, "not fine")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, True),
        (ErrorCode.NOT_ENOUGH_REPLICAS, True),
        (ErrorCode.UNKNOWN_TOPIC_ID, True),
        (ErrorCode.OFFSET_OUT_OF_RANGE, False),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, False),
        (ErrorCode.MESSAGE_TOO_LARGE, False),
    ],
)
def test_what_may_be_better_later(code: ErrorCode, expected: bool) -> None:
    assert is_retriable(ApiError(code, "")) is expected
