"""What jobs have in common."""

from dataclasses import dataclass

from barnabas.spark.jobs.job import JobResult, Progress, say_nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted(JobResult):
    records: int


def test_a_result_is_fine_unless_it_says_otherwise() -> None:
    result = Counted(records=3)
    assert result.is_fine
    assert result.as_dict() == {"records": 3}
    say_nothing(Progress(step="count", done=1, total=2))
