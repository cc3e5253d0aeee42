"""Our sentence is found again in what Spark makes of it."""

import pickle

from barnabas.spark.errors import DataLossError, OptionError, PipelineError, sentence_of

WRAPPED = """\
[PYTHON_DATA_SOURCE_ERROR] Failed to plan Python data source: Traceback (most recent call last):
  File "x.py", line 3, in reader
    raise OptionError("subscribe", "is needed")
barnabas.spark.errors.OptionError: option 'subscribe' is needed

SQLSTATE: 38000"""


def test_sentences() -> None:
    error = OptionError("subscribe", "is needed")
    assert str(error) == "option 'subscribe' is needed"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert sentence_of(DataLossError("Gone.")) == "Gone."
    assert sentence_of(RuntimeError(WRAPPED)) == "option 'subscribe' is needed"
    assert sentence_of(RuntimeError("something else")) is None
    assert isinstance(error, PipelineError)
