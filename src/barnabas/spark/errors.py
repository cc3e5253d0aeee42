"""What went wrong, in one sentence that names the option, the topic or the file.

Spark wraps what a data source raises into a Java exception with the Python traceback inside. `sentence_of` finds our
sentence in there again, so that the command line shows it alone.
"""

import re

# The name in front of the sentence is what Python's traceback prints; it is the only thing that is sure to survive.
_IN_A_TRACEBACK = re.compile(r"barnabas\.spark\.errors\.(\w+Error): (.*)")


class PipelineError(Exception):
    """The work can not be done, or not any further; the message is one whole sentence."""


class OptionError(PipelineError):
    """An option is unknown, missing, or has a value that makes no sense."""

    def __init__(self, option: str, problem: str) -> None:
        super().__init__(f"option '{option}' {problem}")
        self.option = option
        self.problem = problem

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.option, self.problem)


class DataLossError(PipelineError):
    """Records that were to be read are not there any more."""


def sentence_of(error: BaseException) -> str | None:
    """Return our sentence from an exception of ours, or from inside one of Spark's; None when there is none."""
    if isinstance(error, PipelineError):
        return str(error)
    found = _IN_A_TRACEBACK.findall(str(error))
    return str(found[-1][1]).strip() if found else None
