"""What all jobs have in common: how they say how far they are, and what they return.

A job is a plain function on a SparkSession:

    result = archive(spark, "orders", "lake/orders", bootstrap_servers="127.0.0.1:9092", report=print)

It may take minutes, so that it calls `report` while it runs, from any thread; and it ends with a `JobResult`, which the
command line prints as a table or as JSON.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a job is: so many of so many, of what. `total` is 0 while nobody knows."""

    step: str
    done: int
    total: int
    unit: str = "tasks"


Report = Callable[[Progress], None]


def say_nothing(progress: Progress) -> None:
    """The report of who does not want one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult(ABC):
    """What a job did. Every job has a class of its own, whose fields are what `--json` prints."""

    @property
    def is_fine(self) -> bool:
        """Whether the exit code is 0: False when a check found something."""
        return True

    @abstractmethod
    def headings(self) -> Sequence[str]:
        """The headings of the final table."""

    @abstractmethod
    def rows(self) -> Sequence[Sequence[object]]:
        """The rows of the final table."""

    @abstractmethod
    def sentence(self) -> str:
        """The last line: what was done, in words."""

    def as_dict(self) -> dict[str, Any]:
        """The same for programs; only values that JSON has."""
        return asdict(self)
