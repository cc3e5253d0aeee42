"""The one place where what the client fails with becomes a sentence of the pipeline.

Rule 1: a topic that is gone, or is another one by now, is lost data; everything else is work that can not be done.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from barnabas.client.connection import ClientError, ConnectionFailedError
from barnabas.client.fetcher import TopicRecreatedError
from barnabas.records.batch import CorruptRecordError
from barnabas.spark.errors import DataLossError, PipelineError
from barnabas.wire.errors import ApiError

ALLOW_LOSS = "with option 'failOnDataLoss' set to false the query would go on with what is there"


@contextmanager
def plain_errors(what: str) -> Iterator[None]:
    """Raise PipelineError for everything that a client raises; `what` was being done, as in `reading orders-0`."""
    try:
        yield
    except TopicRecreatedError as error:
        raise DataLossError(f"{what} failed: {error}; {ALLOW_LOSS}") from None
    except ConnectionFailedError as error:
        raise PipelineError(f"{what} failed, because the broker can not be reached: {error}") from None
    except CorruptRecordError as error:
        raise PipelineError(f"{what} failed, because a batch is damaged: {error}") from None
    except (ApiError, ClientError) as error:
        raise PipelineError(f"{what} failed: {error}") from None
