"""The load generator, against the stub and against a broker whose log is damaged."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bench.control import Control
from bench.load.measuring import count_faults, produce, run_generator
from bench.load.process import Generator, measure_generator
from bench.load.requests import build_partition_batch, build_rings, partitions_of, records_per_batch
from bench.load.spec import LoadError, LoadReport, LoadSpec, quantile
from bench.peers import Peer, start_barnabas

SPEC = LoadSpec(port=0, topic="loaded", partitions=3, record_bytes=100, batch_bytes=1000, connections=2, seconds=0.2)


@pytest.fixture
def barnabas(tmp_path: Path) -> Iterator[Peer]:
    peer = start_barnabas(tmp_path / "peer")
    try:
        yield peer
    finally:
        peer.close()


def test_specs_and_reports_survive_the_way_between_processes() -> None:
    assert LoadSpec.from_json(SPEC.to_json()) == SPEC
    report = LoadReport(
        seconds=2.0,
        requests=10,
        bytes=4_000_000,
        p50_us=1.0,
        p99_us=2.0,
        p999_us=3.0,
        generator_busy=0.1,
        acknowledged=[5, 5],
    )
    assert LoadReport.from_json(report.to_json()) == report
    assert (report.mb_per_s, report.requests_per_s) == (2.0, 5.0)


@pytest.mark.parametrize(("share", "expected"), [(0.0, 1), (0.5, 50), (0.99, 99), (1.0, 100)])
def test_quantiles(share: float, expected: int) -> None:
    assert quantile(list(range(1, 101)), share) == expected


def test_no_values_have_no_quantile() -> None:
    assert quantile([], 0.5) == 0


def test_a_batch_is_the_same_in_every_process_and_another_in_every_partition() -> None:
    assert build_partition_batch(SPEC, 0) == build_partition_batch(SPEC, 0)
    assert build_partition_batch(SPEC, 0) != build_partition_batch(SPEC, 1)


@pytest.mark.parametrize(("record_bytes", "batch_bytes"), [(100, 1000), (100, 65536), (1024, 1_000_000)])
def test_batches_have_about_the_size_that_is_asked_for(record_bytes: int, batch_bytes: int) -> None:
    spec = replace(SPEC, record_bytes=record_bytes, batch_bytes=batch_bytes)
    assert 0.9 * batch_bytes < len(build_partition_batch(spec, 0)) <= batch_bytes
    assert records_per_batch(spec) > 1
    assert records_per_batch(replace(SPEC, batch_bytes=1)) == 1


def test_a_ring_has_every_partition_equally_often() -> None:
    for connection, ring in enumerate(build_rings(SPEC)):
        assert ring.partitions[: SPEC.partitions] == partitions_of(SPEC, connection)
        assert len({ring.partitions.count(partition) for partition in range(SPEC.partitions)}) == 1
        assert len(ring.frames) == ring.frame_bytes * len(ring.partitions)
        assert all(answer.startswith(prefix) for answer, prefix in zip(ring.answers, ring.prefixes, strict=True))


def test_connections_with_partitions_of_their_own_share_none() -> None:
    spec = replace(SPEC, partitions=10, connections=4, own_partitions=True)
    shares = [partitions_of(spec, connection) for connection in range(4)]
    assert sorted(partition for share in shares for partition in share) == list(range(10))


def test_every_request_is_answered_and_counted() -> None:
    report = measure_generator(SPEC)
    assert report.requests == sum(report.acknowledged) > 0
    assert report.bytes == report.requests * len(build_partition_batch(SPEC, 0))
    assert 0 < report.p50_us <= report.p99_us <= report.p999_us


def test_a_load_ends_when_it_has_sent_enough() -> None:
    spec = replace(SPEC, seconds=60.0, bytes_max=100_000)
    assert 0 < measure_generator(spec).bytes <= spec.bytes_max


def test_an_answer_that_is_not_the_expected_one_ends_the_load() -> None:
    """The stub answers for another topic."""
    stub = Generator("stub", SPEC)
    try:
        generator = Generator("produce", replace(SPEC, port=int(stub.first_line), topic="others"))
        with pytest.raises(LoadError, match=r"produce of others: an answer does not begin with .*\(name='loaded'"):
            generator.run(lambda: None, 1.0)
    finally:
        stub.close()


def test_a_broker_that_is_not_there_is_an_error() -> None:
    with pytest.raises(LoadError, match="refused"):
        Generator("produce", replace(SPEC, port=1))


def test_a_load_on_a_broker_is_read_back_and_removed(barnabas: Peer) -> None:
    spec = replace(SPEC, port=barnabas.port, batch_bytes=65536, bytes_max=50_000_000)
    loaded = produce(barnabas, spec, fetch_seconds=0.1)
    assert loaded.faults == 0
    assert loaded.produced.cpu_s > 0
    assert loaded.produced.resident_mb_max > 1
    assert loaded.fetched is not None
    assert loaded.fetched.report.bytes >= loaded.produced.report.bytes
    assert not barnabas.has_data_of(spec.topic)


def test_a_damaged_batch_and_a_missing_one_are_found(barnabas: Peer) -> None:
    spec = replace(SPEC, port=barnabas.port)
    control = Control(barnabas.port)
    control.create_topic(spec.topic, spec.partitions)
    acknowledged = run_generator(barnabas, "produce", spec).report.acknowledged
    assert count_faults(control, spec, acknowledged) == 0
    with open(barnabas.folder / "data" / f"{spec.topic}-1" / f"{0:020}.log", "r+b") as segment:
        segment.seek(500)
        segment.write(b"damage")
    assert count_faults(control, spec, acknowledged) == 1
    # The log ends before what is said to be acknowledged: the end offset is wrong, and nothing more comes.
    with pytest.raises(LoadError, match=r"nothing comes of partitions \[0\]"):
        count_faults(control, spec, [acknowledged[0] + 1, *acknowledged[1:]])
    control.close()
