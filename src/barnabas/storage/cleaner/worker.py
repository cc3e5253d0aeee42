"""The process that cleans a log, started by the broker once a clean: `python -m barnabas.storage.cleaner.worker PID`.

The job comes as one line of JSON on stdin; answers go as lines to stdout (`job.py`). Compaction is work in Python and C
that takes a core for seconds: in a process of its own it does not stand in the way of the broker's loop.

Rule 1: it ends with the broker, however that ends.
Rule 2: it writes nothing but `.cleaned` files, and takes the processor only when nobody else wants it.
"""

import os
import signal
import sys
from collections.abc import Callable

from barnabas.clock import ManualClock, SystemClock
from barnabas.storage.cleaner.cleaning import LogCleaning
from barnabas.storage.cleaner.job import CleaningError, CleaningJob, decode_job, encode_answer
from barnabas.storage.files import Files, OsFiles

NICENESS = 10
_PR_SET_PDEATHSIG = 1


class Throttle:
    """Lets time pass so that no more than some bytes a second are read and written."""

    def __init__(self, clock: SystemClock | ManualClock, bytes_per_second_max: float) -> None:
        self._clock = clock
        self._rate = bytes_per_second_max
        self._start = clock.monotonic_seconds()
        self._bytes = 0

    def __call__(self, size: int) -> None:
        """Note that bytes were read or written, and wait if that was too fast."""
        self._bytes += size
        ahead = self._bytes / self._rate - (self._clock.monotonic_seconds() - self._start)
        if ahead > 0:
            self._clock.sleep(ahead)


def work(files: Files, job: CleaningJob, answer: Callable[[str], None]) -> None:
    """Clean, and give every answer as a line; whatever goes wrong is the last of them."""
    try:
        for ready in LogCleaning(files, job, Throttle(SystemClock(), job.bytes_per_second_max)).run():
            answer(encode_answer(ready))
    except CleaningError as error:
        answer(encode_answer(error))
    except OSError as error:
        answer(encode_answer(CleaningError(str(error), error.errno)))


def _end_with(parent: int) -> bool:
    """Have this process killed when its parent goes; False when it is gone already."""
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    return os.getppid() == parent


def main(arguments: list[str]) -> int:
    """Clean what stdin asks for."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the broker, which ends this process in its own time.
    if not _end_with(int(arguments[0])):
        return 1
    os.nice(NICENESS)
    work(OsFiles(), decode_job(sys.stdin.readline()), lambda line: print(line, flush=True))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
