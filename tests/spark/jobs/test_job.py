"""What jobs have in common."""

from dataclasses import dataclass

import pytest

from barnabas.spark.jobs.job import JobResult, Progress, say_nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted(JobResult):
    records: int

    def headings(self) -> tuple[str, ...]:
        return ("records",)

    def rows(self) -> list[tuple[object, ...]]:
        return [(self.records,)]

    def sentence(self) -> str:
        return f"{self.records} records"


def test_a_result_is_fine_unless_it_says_otherwise() -> None:
    result = Counted(records=3)
    assert result.is_fine
    assert result.as_dict() == {"records": 3}
    say_nothing(Progress(step="count", done=1, total=2))


def test_a_result_says_what_was_done() -> None:
    with pytest.raises(TypeError, match="abstract"):
        JobResult()  # type: ignore[abstract]
