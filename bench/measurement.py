"""What a section of the benchmark reports: one row of its table, and the facts of the machine it was measured on."""

import os
import platform
import sys
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One figure.

    `floor` is what the figure must keep, in the same unit: an upper bound when `lower_is_better`, else a lower one.
    """

    name: str
    value: float
    unit: str
    floor: float | None = None
    lower_is_better: bool = True
    note: str = ""

    @property
    def holds(self) -> bool | None:
        """Whether the floor is kept; None where there is no floor."""
        if self.floor is None:
            return None
        return self.value <= self.floor if self.lower_is_better else self.value >= self.floor


def machine_facts() -> dict[str, str | int]:
    """What a reader needs to know to compare figures."""
    return {
        "python": sys.version.split()[0],
        "system": platform.platform(),
        "processor": _processor_name(),
        "cores": os.cpu_count() or 0,
    }


def _processor_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
