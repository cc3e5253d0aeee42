"""The section `care`, small and without Kafka: every figure comes out, and what is refused is an error."""

from dataclasses import replace
from pathlib import Path

import pytest

from bench.control import Control
from bench.load.keyed import KeyedLoad
from bench.load.spec import LoadError, LoadSpec
from bench.peers import start_barnabas
from bench.sections import care

SMALL = care.Plan(
    rounds=1, restarted_bytes=5_000_000, compacted_bytes=210_000_000, keys=20_000, seconds=0.2, segments=2
)


def test_every_figure_comes_out(capsys: pytest.CaptureFixture[str]) -> None:
    found = {each.name: each for each in care.measure(SMALL, start_other=None)}
    assert list(found) == [
        "restart after kill -9, Barnabas",
        "compaction, Barnabas",
        "produce p99 while a clean runs, Barnabas",
        "retention of 10,000 segments",
    ]
    assert all(each.value > 0 for each in found.values())
    assert "restart, Barnabas" in capsys.readouterr().err


def test_records_with_keys_are_written_in_whole_passes(tmp_path: Path) -> None:
    peer = start_barnabas(tmp_path / "peer")
    try:
        control = Control(peer.port)
        control.create_topic("keyed", 1)
        spec = LoadSpec(port=peer.port, topic="keyed", partitions=1, record_bytes=50, batch_bytes=2000)
        load = KeyedLoad(spec, 100)
        assert load.write(1) == load.batch_bytes
        assert load.write(load.batch_bytes + 1) == 2 * load.batch_bytes
        assert control.end_offsets("keyed", 1) == [300]
        control.close()
        with pytest.raises(LoadError, match="a batch is refused: error 3"):
            KeyedLoad(replace(spec, topic="unknown"), 10).write(1)
    finally:
        peer.close()
