"""What a process costs, read from /proc: CPU seconds and resident memory, with its threads and its children."""

import os
from dataclasses import dataclass
from pathlib import Path

TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
MB = 1e6

# Fields of /proc/PID/stat, counted from the one behind the name of the program: user and system time, the same of
# children that have ended, and pages in memory.
CPU_FIELDS = (11, 12, 13, 14)
RESIDENT_FIELD = 21


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessCost:
    """CPU seconds so far, user and system together, and memory now."""

    cpu_s: float
    resident_mb: float


def process_cost(process_id: int) -> ProcessCost:
    """The cost of a process and of all its descendants."""
    fields = Path(f"/proc/{process_id}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    cpu_s = sum(int(fields[field]) for field in CPU_FIELDS) / TICKS_A_SECOND
    resident_mb = int(fields[RESIDENT_FIELD]) * PAGE_BYTES / MB
    for children in Path(f"/proc/{process_id}/task").glob("*/children"):
        for child in children.read_text(encoding="utf-8").split():
            cost = process_cost(int(child))
            cpu_s += cost.cpu_s
            resident_mb += cost.resident_mb
    return ProcessCost(cpu_s=cpu_s, resident_mb=resident_mb)
