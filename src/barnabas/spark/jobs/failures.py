"""The one place where what Spark fails with inside a job becomes one of our sentences again."""

from collections.abc import Iterator
from contextlib import contextmanager

from barnabas.spark.errors import PipelineError
from barnabas.spark.jobs.topics import plain_error


@contextmanager
def plain_failures() -> Iterator[None]:
    """Raise PipelineError where Spark wraps one of ours; everything else goes through as it is."""
    try:
        yield
    except PipelineError:
        raise
    except Exception as error:  # Spark's are of many kinds, and only the text inside tells which are ours.
        ours = plain_error(error)
        if ours is None:
            raise
        raise ours from error
