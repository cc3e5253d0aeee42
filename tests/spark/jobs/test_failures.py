"""What Spark wraps is found again, and what is nobody's goes through."""

import pytest

from barnabas.spark.errors import DataLossError, PipelineError
from barnabas.spark.jobs.failures import plain_failures


def test_our_sentence_comes_out_of_what_spark_says() -> None:
    text = "Job aborted.\nTraceback\nbarnabas.spark.errors.DataLossError: records are gone\nat java.lang.Thread"
    with pytest.raises(DataLossError, match=r"^records are gone$"), plain_failures():
        raise RuntimeError(text)
    with pytest.raises(PipelineError, match=r"^no$"), plain_failures():
        raise PipelineError("no")
    with pytest.raises(KeyError), plain_failures():
        raise KeyError("other")
