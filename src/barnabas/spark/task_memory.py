"""Keeps what a Python worker has imported out of the garbage collector's sight.

Spark collects garbage after every task, before the worker takes the next one, and the collector looks at all that is
loaded of pyspark, Arrow and ours: 30 to 70 ms in which nothing is read or written, for what is never garbage.
"""

import gc
from functools import cache


@cache
def spare_imports() -> None:
    """Tell the collector, once in a process, to leave alone what is there; a task calls this when it begins."""
    gc.freeze()
