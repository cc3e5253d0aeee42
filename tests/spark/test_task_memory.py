"""The collector leaves alone what a worker has imported, and goes on to collect what tasks leave behind."""

import gc
import subprocess
import sys

from barnabas.spark.task_memory import spare_imports

PROGRAM = """
import gc, weakref
from barnabas.spark.task_memory import spare_imports

class Knot:
    def __init__(self):
        self.knot = self

spare_imports()
frozen = gc.get_freeze_count()
assert frozen > 1000, frozen
later = weakref.ref(Knot())
spare_imports()
gc.collect()
assert later() is None, "what came after the first task is collected"
assert gc.get_freeze_count() <= frozen, "once is enough"
"""


def test_imports_are_spared_once() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_it_may_be_called_by_every_task() -> None:
    spare_imports()
    before = gc.get_freeze_count()
    spare_imports()
    assert gc.get_freeze_count() <= before
