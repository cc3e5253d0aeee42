"""What /proc says about a process, compared with what the process knows about itself."""

import os
import resource
import subprocess
import sys
import time

from bench.process_cost import process_cost


def test_the_cost_of_this_process() -> None:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    cost = process_cost(os.getpid())
    # Ticks are hundredths of seconds, and children that have ended count, too.
    assert cost.cpu_s >= usage.ru_utime + usage.ru_stime - 0.1
    assert 1 < cost.resident_mb < usage.ru_maxrss * 1024 / 1e6 + 200


def test_children_count() -> None:
    before = process_cost(os.getpid())
    child = subprocess.Popen([sys.executable, "-c", "print(flush=True)\nwhile True: pass"], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        child.stdout.readline()
        deadline = time.monotonic() + 20
        while process_cost(os.getpid()).cpu_s < before.cpu_s + 0.2 and time.monotonic() < deadline:
            time.sleep(0.01)
        now = process_cost(os.getpid())
        assert now.cpu_s >= before.cpu_s + 0.2
        assert now.resident_mb > before.resident_mb + 3
    finally:
        child.kill()
        child.communicate()
