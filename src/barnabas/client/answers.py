"""What an error code in an answer means to a client: an exception with a sentence, and whether to ask again.

Rule 1: codes that are newer than our table are no reason to fail in another way: they become UNKNOWN_SERVER_ERROR, and
the sentence has the number.
"""

from barnabas.wire.errors import ApiError, ErrorCode

# Another broker is asked, or the same one later. UNKNOWN_TOPIC_OR_PARTITION is among them because a broker may hear of
# a topic later than its clients; whether there is such a topic at all is said by the metadata.
RETRIABLE = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


def error_of(code: int, what: str, message: str | None = None) -> ApiError:
    """Return the exception for a code, with what it is about, and the broker's own words where it gave some."""
    try:
        known = ErrorCode(code)
    except ValueError:
        return ApiError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"{what} (error code {code}{f': {message}' if message else ''})"
        )
    return ApiError(known, f"{what}: {message}" if message else what)


def check_answer(code: int, what: str, message: str | None = None) -> None:
    """Raise the exception for a code, unless it is 0."""
    if code != ErrorCode.NONE:
        raise error_of(code, what, message)


def is_retriable(error: ApiError) -> bool:
    """Tell whether the same question may have a better answer later."""
    return error.code in RETRIABLE
