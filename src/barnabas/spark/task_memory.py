"""Keeps what a Python worker has imported out of the garbage collector's sight.

Spark collects garbage after every task, before the worker takes the next one, and the collector looks at all that is
loaded of pyspark, Arrow, pandas and ours: 30 to 70 ms in which nothing is read or written, for what is never garbage.
"""

import gc
import sys

_spared = 0


def spare_imports() -> None:
    """Tell the collector to leave alone what is there, if anything was imported since; a task calls this first.

    Some libraries are imported by the first task and not before it, so that the second has to call again.
    """
    global _spared
    if len(sys.modules) > _spared:
        _spared = len(sys.modules)
        gc.freeze()
