"""The most memory that a Spark driver and its Python workers had while something ran.

The driver is a JVM, and the workers are what it starts for its tasks. They are looked at ten times a second: what is
shorter than that is not seen.
"""

import threading
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.process_cost import MB, PAGE_BYTES

LOOK_S = 0.1
RESIDENT_FIELD = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """Megabytes: of the JVM, and of all Python workers together."""

    driver_mb: float
    workers_mb: float


class MemoryWatch:
    """Looks at memory from a thread of its own, between entering and leaving."""

    def __init__(self, process_id: int) -> None:
        self._process_id = process_id
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._driver_mb = self._workers_mb = 0.0

    @property
    def peak(self) -> Peak:
        """The most that was seen."""
        return Peak(driver_mb=self._driver_mb, workers_mb=self._workers_mb)

    def _look(self) -> None:
        while True:
            self._driver_mb = max(self._driver_mb, resident_mb(self._process_id))
            workers_mb = sum(map(resident_mb, descendants(self._process_id)))
            self._workers_mb = max(self._workers_mb, workers_mb)
            if self._is_over.wait(LOOK_S):
                return

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join()


def descendants(process_id: int) -> list[int]:
    """All processes below one; some may be gone by the time they are looked at."""
    found: list[int] = []
    for children in Path(f"/proc/{process_id}/task").glob("*/children"):
        try:
            names = children.read_text(encoding="utf-8").split()
        except OSError:
            continue
        for child in map(int, names):
            found += [child, *descendants(child)]
    return found


def resident_mb(process_id: int) -> float:
    """The memory of a process in MB; nothing for one that is gone."""
    try:
        fields = Path(f"/proc/{process_id}/statm").read_text(encoding="utf-8").split()
    except OSError:
        return 0.0
    return int(fields[RESIDENT_FIELD]) * PAGE_BYTES / MB
