"""What a load is, and what it reports: both cross a process boundary as JSON.

Rule 1: a spec says everything that the records depend on (seed, time, sizes), so that the process that checks the log
builds the very batches that the process that wrote them had built.
"""

import json
import time
from dataclasses import asdict, dataclass, field
from typing import Self


class LoadError(Exception):
    """A broker did not answer as it must; the message says which request, and what came instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSpec:
    """One load: how many connections write which batches for how long.

    It ends after `seconds`, or when `bytes_max` bytes of batches are sent. With `own_partitions` every connection has
    its own share of the partitions; without, all write to all of them in turn.
    """

    port: int
    topic: str
    partitions: int
    record_bytes: int
    batch_bytes: int
    connections: int = 1
    in_flight: int = 5
    acks: int = -1
    seconds: float = 4.0
    bytes_max: int = 1 << 31
    own_partitions: bool = False
    seed: int = 1
    # Records carry the time of now, since a broker may refuse others.
    timestamp_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)

    def to_json(self) -> str:
        """The spec as an argument of a process."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote."""
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """What a load did. Latencies are from handing a request to the socket to its answer, in microseconds."""

    seconds: float
    requests: int
    bytes: int
    p50_us: float
    p99_us: float
    p999_us: float
    # CPU seconds of the generator a second of load: near 1 it is the generator that was measured.
    generator_busy: float
    # Batches that were acknowledged, by partition.
    acknowledged: list[int]

    @property
    def mb_per_s(self) -> float:
        """Bytes of batches, in millions a second."""
        return self.bytes / self.seconds / 1e6

    @property
    def requests_per_s(self) -> float:
        """Requests that were answered in a second."""
        return self.requests / self.seconds

    def to_json(self) -> str:
        """The report as a line of output."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote."""
        return cls(**json.loads(text))


def quantile(ordered: list[int], share: float) -> float:
    """The value below which this share of some ordered values lies; 0 where there are none."""
    return float(ordered[int(share * (len(ordered) - 1))]) if ordered else 0.0
