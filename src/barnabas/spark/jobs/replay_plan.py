"""What a replay is: from where, to where, which offsets, and in which steps. Pure, but for reading and writing it.

    <checkpoint>/metadata              the id of the replay, which its transactional ids begin with
    <checkpoint>/replay.json           the plan: written once, so that a restart takes the same steps
    <checkpoint>/barnabas-sink/...     which steps are done, as the sink has it (`sink.decisions`)

Rule 1: a step is a range of offsets in every partition, and follows from the plan alone.
Rule 2: steps are taken one after the other, so that the records of a partition stay in order.
"""

import json
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from barnabas.spark.archives.files import ExistsError, Files
from barnabas.spark.errors import PipelineError

PLAN = "replay.json"
METADATA = "metadata"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPlan:
    """A replay, as it was when it first began."""

    source: str
    source_topic: str
    source_topic_id: str
    target_topic: str
    target_topic_id: str
    # By partition of the source, as text because JSON has no other keys.
    starts: Mapping[str, int]
    ends: Mapping[str, int]
    # How many offsets of a partition a step has.
    step_offsets: int
    keeps_partitions: bool
    # Of an archive, how many commits it had.
    commits: int
    wanted: str
    """What was asked for, to tell whether a restart asks for the same."""

    @property
    def steps(self) -> int:
        """How many steps there are."""
        return max((-(-(self.ends[each] - self.starts[each]) // self.step_offsets) for each in self.starts), default=0)

    @property
    def offsets(self) -> int:
        """How many offsets there are."""
        return sum(self.ends[each] - self.starts[each] for each in self.starts)

    def step(self, number: int) -> dict[int, tuple[int, int]]:
        """Return the offsets of one step by partition, those without any left out."""
        ranges = {}
        for name, start in self.starts.items():
            first = start + number * self.step_offsets
            last = min(first + self.step_offsets, self.ends[name])
            if first < last:
                ranges[int(name)] = (first, last)
        return ranges

    def step_text(self, number: int) -> str:
        """Return what tells a step from any other, also of another plan."""
        return json.dumps([self.source, self.source_topic_id, self.target_topic_id, self.step(number)])


def wanted_text(**choices: object) -> str:
    """Return what was asked for in one order."""
    return json.dumps(choices, sort_keys=True, default=str)


def read_plan(files: Files, wanted: str) -> ReplayPlan | None:
    """Return the plan of a replay that began before, or None; raises PipelineError when it is of another one."""
    if not files.exists(PLAN):
        return None
    try:
        fields: dict[str, Any] = json.loads(files.read(PLAN))
        plan = ReplayPlan(**fields)
    except (ValueError, TypeError):
        raise PipelineError(f"{files.path(PLAN)} is not the plan of a replay") from None
    if plan.wanted != wanted:
        raise PipelineError(
            f"{files.folder} is the checkpoint of another replay, of {plan.source} to topic {plan.target_topic!r}: "
            f"what was asked for there was {plan.wanted}"
        )
    return plan


def write_plan(files: Files, plan: ReplayPlan) -> None:
    """Keep a plan; raises PipelineError when another job was faster."""
    try:
        if not files.exists(METADATA):
            files.create(METADATA, json.dumps({"id": str(uuid.uuid4())}))
        files.create(PLAN, json.dumps(asdict(plan), indent=2, sort_keys=True) + "\n")
    except ExistsError:
        raise PipelineError(f"another job has begun a replay with the checkpoint {files.folder} just now") from None
