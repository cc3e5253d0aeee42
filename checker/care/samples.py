"""What a broker takes of its machine, second by second: memory, file handles, threads, children and disk.

    Sampler(pid_of, data) --> one Sample a second, from /proc and the folder --> judge(samples)

Rule 1: a life is what lies between a start and the next: the process of one life has nothing of the one before.
Rule 2: a series is judged after its warm-up, which is its first quarter: the median of its last quarter must not be
above that of its second quarter by more than its margin. A leak goes on, what is busy goes up and down.
Rule 3: lives are judged one by one where they are long enough, and all together. Across lives everything that a start
has to bring back (memory, handles) and everything that a crash may leave behind (disk) shows.
"""

import os
import statistics
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from barnabas.clock import SystemClock
from checker.model import Finding

INTERVAL_S = 1.0
LIFE_SAMPLES_MIN = 40
ALL_SAMPLES_MIN = 16
MEGABYTE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One look at a broker."""

    at_s: float
    life: int
    memory: int
    handles: int
    threads: int
    children: int
    disk: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One of the figures of a sample, and by how much it may grow: a share of itself and a number beside."""

    name: str
    title: str
    share: float
    beside: float
    unit: str = ""

    def of(self, sample: Sample) -> float:
        """The figure, in its unit."""
        value = float(getattr(sample, self.name))
        return value / MEGABYTE if self.unit == "MB" else value

    def limit(self, early: float) -> float:
        """What the last quarter may have, if the second has `early`."""
        return early * (1 + self.share) + self.beside


SERIES = (
    Series(name="memory", title="Memory (resident)", share=0.10, beside=12, unit="MB"),
    Series(name="handles", title="File handles", share=0.15, beside=40),
    # The pool that waits for the disk grows to `num.io.threads`, which is 8, when it is first needed.
    Series(name="threads", title="Threads", share=0.0, beside=10),
    Series(name="children", title="Child processes", share=0.0, beside=2),
    Series(name="disk", title="Bytes on the disk", share=0.25, beside=8, unit="MB"),
)


def read_sample(pid: int, data: Path, at_s: float, life: int) -> Sample | None:
    """Look at a process and its folder; None when it is gone."""
    process = Path(f"/proc/{pid}")
    try:
        status = (process / "status").read_text(encoding="utf-8")
        fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        if "VmRSS" not in fields:
            return None  # It has ended, and nobody has asked for its exit code yet.
        handles = len(os.listdir(process / "fd"))
        children = sum(len((task / "children").read_text().split()) for task in (process / "task").iterdir())
    except (FileNotFoundError, ProcessLookupError):
        return None
    return Sample(
        at_s=at_s,
        life=life,
        memory=int(fields["VmRSS"].split()[0]) * 1024,
        handles=handles,
        threads=int(fields["Threads"]),
        children=children,
        disk=_disk_bytes(data),
    )


def _disk_bytes(folder: Path) -> int:
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(path, name)).st_blocks * 512
            except FileNotFoundError:
                continue  # It was deleted meanwhile.
    return total


class Sampler:
    """A thread that looks once a second, as long as it is not stopped."""

    def __init__(self, pid_of: Callable[[], int | None], data: Path, now: Callable[[], float]) -> None:
        self._pid_of = pid_of
        self._data = data
        self._now = now
        self._stopping = threading.Event()
        self._pid: int | None = None
        self._life = -1
        self.samples: list[Sample] = []
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        clock = SystemClock()
        due = clock.monotonic_seconds()
        while not self._stopping.is_set():
            self.look()
            due += INTERVAL_S
            self._stopping.wait(max(0.0, due - clock.monotonic_seconds()))

    def look(self) -> None:
        """Take one sample, if the broker is there."""
        pid = self._pid_of()
        if pid is None:
            return
        if pid != self._pid:
            self._pid = pid
            self._life += 1
        sample = read_sample(pid, self._data, self._now(), self._life)
        if sample is not None:
            self.samples.append(sample)

    def stop(self) -> list[Sample]:
        """Stop looking, and return what was seen."""
        self._stopping.set()
        self._thread.join()
        return self.samples


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """The judgement of one series over some samples."""

    series: Series
    whose: str
    early: float
    late: float
    samples: int

    @property
    def is_level(self) -> bool:
        """Whether it did not grow beyond its margin."""
        return self.late <= self.series.limit(self.early)

    def __str__(self) -> str:
        unit = f" {self.series.unit}" if self.series.unit else ""
        figures = f"{self.early:.1f} -> {self.late:.1f}{unit}, limit {self.series.limit(self.early):.1f}"
        return f"{self.series.title}, {self.whose}: {figures} ({self.samples} samples)"


def judge(samples: Sequence[Sample]) -> list[Level]:
    """Judge all samples together, and those of every long life."""
    levels = []
    lives: dict[int, list[Sample]] = {}
    for sample in samples:
        lives.setdefault(sample.life, []).append(sample)
    groups = [("all lives", list(samples), ALL_SAMPLES_MIN)]
    if len(lives) > 1:
        groups += [(f"life {life + 1}", found, LIFE_SAMPLES_MIN) for life, found in lives.items()]
    for whose, found, least in groups:
        if len(found) < least:
            continue
        quarter = len(found) // 4
        for series in SERIES:
            # What a single life has on the disk depends on what the crash before it left to clean up.
            if series.name == "disk" and whose != "all lives":
                continue
            early = statistics.median(series.of(sample) for sample in found[quarter : 2 * quarter])
            late = statistics.median(series.of(sample) for sample in found[-quarter:])
            levels.append(Level(series=series, whose=whose, early=early, late=late, samples=len(found)))
    return levels


def growth(levels: Sequence[Level]) -> list[Finding]:
    """What is not level."""
    return [Finding(kind="growth", sentence=str(level)) for level in levels if not level.is_level]
