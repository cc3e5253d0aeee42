"""One load on one broker, from making its topic to removing its data, with what it cost the broker.

Rule 1: a load is over when the log was compared with what was sent, and its data is gone and what is left is on disk,
so that no load pays for the one before it.
"""

import os
import time
from dataclasses import dataclass, replace
from typing import NamedTuple

from bench.control import Control
from bench.load.process import Generator, faults_in_log
from bench.load.requests import records_per_batch
from bench.load.spec import LoadReport, LoadSpec
from bench.peers import Peer

SAMPLE_S = 0.05
REMOVAL_S_MAX = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A report, and what the broker spent on it."""

    report: LoadReport
    cpu_s: float
    resident_mb_max: float

    @property
    def cpu_s_per_gb(self) -> float:
        """CPU seconds of the broker for a billion bytes of batches."""
        return self.cpu_s / self.report.bytes * 1e9

    @property
    def cpu_us_per_request(self) -> float:
        """CPU microseconds of the broker for a request."""
        return self.cpu_s / self.report.requests * 1e6


class Loaded(NamedTuple):
    """A produce load, the load that read it back if there was one, and the check of the log."""

    produced: Sample
    fetched: Sample | None
    faults: int


def produce(peer: Peer, spec: LoadSpec, *, fetch_seconds: float = 0.0) -> Loaded:
    """Write to a new topic, read it back if asked to, check it, and remove it."""
    control = Control(peer.port)
    try:
        control.create_topic(spec.topic, spec.partitions)
        produced = run_generator(peer, "produce", spec)
        faults = count_faults(control, spec, produced.report.acknowledged)
        fetched = None
        if fetch_seconds:
            fetch_spec = replace(spec, seconds=fetch_seconds)
            fetched = run_generator(peer, "fetch", fetch_spec, produced.report.acknowledged)
        control.delete_topic(spec.topic)
        wait_for_removal(peer, spec.topic)
    finally:
        control.close()
    return Loaded(produced, fetched, faults)


def run_generator(peer: Peer, command: str, spec: LoadSpec, acknowledged: list[int] | None = None) -> Sample:
    """Run one load and watch the broker while it lasts."""
    generator = Generator(command, spec, acknowledged)
    try:
        before = peer.cost()
        resident = [before.resident_mb]
        report = generator.run(lambda: resident.append(peer.cost().resident_mb), SAMPLE_S)
        after = peer.cost()
    finally:
        generator.close()
    return Sample(
        report=report,
        cpu_s=after.cpu_s - before.cpu_s,
        resident_mb_max=max(*resident, after.resident_mb),
    )


def count_faults(control: Control, spec: LoadSpec, acknowledged: list[int]) -> int:
    """Batches that are not in the log as they were sent, and partitions that end elsewhere than acknowledged."""
    records = records_per_batch(spec)
    ends = control.end_offsets(spec.topic, spec.partitions)
    wrong_ends = sum(end != count * records for end, count in zip(ends, acknowledged, strict=True))
    return wrong_ends + faults_in_log(spec, acknowledged)


def wait_for_removal(peer: Peer, topic: str) -> None:
    """Wait until the files of a deleted topic are gone, then write what is left to disk."""
    deadline = time.monotonic() + REMOVAL_S_MAX
    while peer.has_data_of(topic) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.sync()
