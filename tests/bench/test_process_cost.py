"""What /proc says about a process, compared with what the process knows about itself.

The process is one made for this: that of the tests has children of other tests, which come and go.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent

ITSELF = """
import os, resource
from bench.process_cost import process_cost
usage = resource.getrusage(resource.RUSAGE_SELF)
cost = process_cost(os.getpid())
# Ticks are hundredths of seconds.
assert cost.cpu_s >= usage.ru_utime + usage.ru_stime - 0.1, cost
assert 1 < cost.resident_mb < usage.ru_maxrss * 1024 / 1e6 + 20, cost
"""

WITH_A_CHILD = """
import os, subprocess, sys, time
from bench.process_cost import process_cost
before = process_cost(os.getpid())
child = subprocess.Popen([sys.executable, "-c", "print(flush=True)\\nwhile True: pass"], stdout=subprocess.PIPE)
try:
    child.stdout.readline()
    deadline = time.monotonic() + 20
    while process_cost(os.getpid()).cpu_s < before.cpu_s + 0.2 and time.monotonic() < deadline:
        time.sleep(0.01)
    now = process_cost(os.getpid())
    assert now.cpu_s >= before.cpu_s + 0.2, (before, now)
    assert now.resident_mb > before.resident_mb + 3, (before, now)
finally:
    child.kill()
    child.communicate()
"""


def run_alone(code: str) -> None:
    """Run code in a process of its own; what it asserts is asserted here."""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_cost_of_a_process() -> None:
    run_alone(ITSELF)


def test_children_count() -> None:
    run_alone(WITH_A_CHILD)
