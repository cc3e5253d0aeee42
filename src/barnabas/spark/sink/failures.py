"""The one place where an error of the client becomes a sentence of the sink."""

from collections.abc import Iterator
from contextlib import contextmanager

from barnabas.client.connection import ClientError
from barnabas.spark.errors import PipelineError
from barnabas.wire.errors import ApiError, ErrorCode

_HINTS = {
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "the broker's transaction.max.timeout.ms is less than the option "
    "'kafka.transaction.timeout.ms'",
    ErrorCode.MESSAGE_TOO_LARGE: "set the option 'kafka.batch.size' to less than the topic's max.message.bytes",
}


@contextmanager
def told_as_pipeline_errors(what: str) -> Iterator[None]:
    """Raise what the client raises inside as a PipelineError that begins with what was being done."""
    try:
        yield
    except (ApiError, ClientError) as error:
        raise PipelineError(f"{what} failed: {sentence(error)}") from error


def sentence(error: ApiError | ClientError) -> str:
    """Return what an error says on one line, with what can be done about it where that is known."""
    text = " ".join(str(error).split())
    hint = _HINTS.get(error.code) if isinstance(error, ApiError) else None
    return f"{text} ({hint})" if hint else text
