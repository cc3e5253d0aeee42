"""Which offsets a snapshot takes from the archive, and which from the topic: plain numbers in, plain numbers out.

archive   [0 ............ 70)
topic                [50 ......... 100)
snapshot  [0 ............ 70)[70 .. 90)     with an end at 90; what both have is read from the archive
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from barnabas.spark.errors import DataLossError, PipelineError
from barnabas.spark.jobs.topic import Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What is read of a partition."""

    partition: int
    archived: Span
    live: Span

    @property
    def start(self) -> int:
        """The first offset that is read."""
        return self.archived.start if self.archived.size else self.live.start

    @property
    def end(self) -> int:
        """The offset behind the last one that is read."""
        return self.live.end if self.live.size or not self.archived.size else self.archived.end


def whole(archived: Mapping[int, Span], live: Mapping[int, Span]) -> dict[int, Span]:
    """Return what archive and topic have together; raises DataLossError where there is a hole between them."""
    together = {}
    for partition in sorted({*archived, *live}):
        old, new = archived.get(partition), live.get(partition)
        if old is None or new is None:
            together[partition] = old or new or Span(start=0, end=0)
            continue
        if new.start > old.end:
            raise DataLossError(
                f"records of partition {partition} from offset {old.end} to {new.start} are gone: the archive ends "
                f"before, and the topic begins after them"
            )
        together[partition] = Span(start=min(old.start, new.start), end=max(old.end, new.end))
    return together


def check_ends(ends: Mapping[int, int], available: Mapping[int, Span]) -> None:
    """Refuse offsets that a snapshot can not end at; raises PipelineError."""
    for partition in sorted({*ends, *available}):
        if partition not in ends:
            raise PipelineError(f"a snapshot at offsets must name every partition, but {partition} is not in it")
        if partition not in available:
            raise PipelineError(f"a snapshot can not end at an offset of partition {partition}: there is none")
        span = available[partition]
        if not span.start <= ends[partition] <= span.end:
            raise PipelineError(
                f"a snapshot can not end at offset {ends[partition]} of partition {partition}, which has {span.start} "
                f"to {span.end}"
            )


def parts(archived: Mapping[int, Span], live: Mapping[int, Span], ends: Mapping[int, int]) -> list[Part]:
    """Return what is read of every partition, each offset once."""
    nothing = Span(start=0, end=0)
    result = []
    for partition, end in sorted(ends.items()):
        old, new = archived.get(partition, nothing), live.get(partition, nothing)
        if new.start < old.start:
            old = nothing  # The archive was begun later than the topic, which still has all of it.
        from_archive = Span(start=old.start, end=max(old.start, min(old.end, end))) if old.size else nothing
        start = max(new.start, old.end) if old.size else new.start
        result.append(
            Part(partition=partition, archived=from_archive, live=Span(start=start, end=max(start, min(new.end, end))))
        )
    return result
