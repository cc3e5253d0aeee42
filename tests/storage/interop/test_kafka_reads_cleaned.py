"""Kafka's own dump tool has no complaint of what the cleaner wrote, and sees the same records in it."""

from pathlib import Path

import pytest

from barnabas.records.codecs import Codec
from barnabas.storage.files import OsFiles
from tests.storage.cleaner.model import RETENTION_MS, History
from tests.storage.interop.kafka_dump import KafkaDump

pytestmark = pytest.mark.kafka


def test_kafka_has_no_complaint_of_a_cleaned_log(kafka_jars: Path, tmp_path: Path) -> None:
    folder = tmp_path / "orders-0"
    history = History(OsFiles(), directory=str(folder))
    history.append_old_format([(0, Codec.NONE, [(1, False), (2, True)]), (1, Codec.GZIP, [(3, False), (4, False)])])
    for number, codec in enumerate([*Codec, *Codec]):
        history.append([(number % 6, False), (7 + number, number % 3 == 0)], codec, number % 3)
        history.append([(20 + number % 2, False), (30 + number, False)], codec, 11, transactional=True)
        history.end_transaction(11, commit=number % 2 == 0)
        if number in (4, 7):
            history.clock.advance(RETENTION_MS)
            history.clean()
            history.check()
    history.log.close()
    logs = sorted(folder.glob("*.log"))
    indexes = [*folder.glob("*.index"), *folder.glob("*.timeindex")]
    dump = KafkaDump([*logs, *indexes, *folder.glob("*.txnindex"), *folder.glob("*.snapshot")], "--deep-iteration")
    # Offsets that are missing are what compaction makes; the tool says so of Kafka's own compacted logs as well.
    assert [line for line in dump.complaints if not line.startswith("Non-consecutive offsets")] == []
    batches = [batch for path in logs for batch in dump.batches(path)]
    assert any(batch.count == 0 for batch in batches), "the last batch of a producer is empty"
    assert any(batch.count <= batch.last_offset - batch.base_offset for batch in batches if batch.count)
    dumped = [
        (record.offset, record.timestamp_ms) for batch in batches if not batch.is_control for record in batch.records
    ]
    assert dumped == [(record.offset, record.timestamp) for record in history.alive()]
