"""The collector leaves alone what a worker has imported, and goes on to collect what tasks leave behind."""

import subprocess
import sys

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
assert gc.get_freeze_count() <= frozen, "nothing was imported"

import decimal, xml.dom.minidom
gc.collect()
left = len(gc.get_objects())
spare_imports()
assert len(gc.get_objects()) < left / 2, "what the first task has imported is left alone by the second"
"""


def test_imports_are_spared_and_garbage_is_not() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
