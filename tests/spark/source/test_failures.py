"""What the client fails with, as sentences of the pipeline."""

import pytest

from barnabas.client.connection import ConnectionFailedError
from barnabas.client.fetcher import TopicRecreatedError
from barnabas.client.metadata import UnknownTopicError
from barnabas.client.options import Address
from barnabas.records.batch import CorruptRecordError
from barnabas.spark.errors import DataLossError, OptionError, PipelineError
from barnabas.spark.source.failures import plain_errors
from barnabas.wire.errors import ApiError, ErrorCode


@pytest.mark.parametrize(
    ("error", "kind", "sentence"),
    [
        (TopicRecreatedError("it is another one"), DataLossError, "reading failed: it is another one; with option"),
        (
            ConnectionFailedError(Address("there", 1), "refused"),
            PipelineError,
            "reading failed, because the broker can not be reached: there:1: refused",
        ),
        (CorruptRecordError("Bad.", 3), PipelineError, "reading failed, because a batch is damaged: Bad. (at byte 3)"),
        (ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no"), PipelineError, "TOPIC_AUTHORIZATION_FAILED: no"),
        (UnknownTopicError("there is no topic 'x'"), PipelineError, "reading failed: there is no topic 'x'"),
        # What is a sentence already stays one.
        (OptionError("assign", "is wrong"), OptionError, "option 'assign' is wrong"),
    ],
)
def test_every_failure_is_one_sentence(error: Exception, kind: type[Exception], sentence: str) -> None:
    with pytest.raises(kind) as raised, plain_errors("reading"):
        raise error
    assert type(raised.value) is kind
    assert sentence in str(raised.value)
    assert raised.value is error or raised.value.__suppress_context__


def test_our_own_bugs_are_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError), plain_errors("reading"):
        raise ZeroDivisionError
