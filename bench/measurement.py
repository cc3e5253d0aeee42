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


class StolenTime:
    """How much of the processors other machines on the same hardware had, from construction on; Linux tells."""

    def __init__(self, path: str = "/proc/stat") -> None:
        self._path = path
        self._before = self._read()

    def measurement(self) -> Measurement | None:
        """The figure, or None where nobody tells. Of a run that much was taken from, even ratios say little."""
        after = self._read()
        if self._before is None or after is None:
            return None
        wanted, stolen = (now - then for now, then in zip(after, self._before, strict=True))
        return Measurement(
            name="processor time that others took",
            value=100 * stolen / wanted if wanted else 0.0,
            unit="%",
            note="of what this machine wanted while the section ran (steal)",
        )

    def _read(self) -> tuple[int, int] | None:
        """Clock ticks that were wanted, and those of them that were stolen."""
        try:
            with open(self._path, encoding="utf-8") as file:
                # cpu user nice system idle iowait irq softirq steal ...
                ticks = [int(field) for field in file.readline().split()[1:9]]
        except OSError:
            return None
        if len(ticks) < 8:
            return None
        user, nice, system, _, _, irq, softirq, steal = ticks
        return user + nice + system + irq + softirq + steal, steal


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
