"""What a clean does to single batches; `test_model` holds whole histories against a model."""

from collections.abc import Callable
from typing import Any

import pytest

from barnabas.clock import ManualClock
from barnabas.records.batch import DELETE_HORIZON, BatchHeader
from barnabas.records.builder import build_batch
from barnabas.records.codecs import Codec
from barnabas.records.record import Record
from barnabas.storage.cleaner.choice import cleanable_part
from barnabas.storage.cleaner.cleaning import HORIZON_MAX, LogCleaning
from barnabas.storage.cleaner.job import CleanedGroup, CleaningError, CleaningResult
from barnabas.storage.cleaner.preparation import CleanerLimits, PreparedClean, log_view
from barnabas.storage.log import Log
from tests.storage.builders import NOW_MS, marker_of, open_log, sent_by
from tests.storage.building import all_records, segment_batches
from tests.storage.cleaner.cleaning_words import SMALL, clean
from tests.storage.memory_files import MemoryFiles

DAY_MS = 86_400_000
Row = tuple[bytes | None, bytes | None]


class Cleaned:
    """A log on a disk in memory, and the words to fill and clean it."""

    def __init__(self, **settings: Any) -> None:
        self.files = MemoryFiles()
        self.log: Log = open_log(self.files, cleanup_policy=("compact",), **settings)
        self.clock = ManualClock()

    def append(self, *rows: Row, **fields: Any) -> None:
        # As a coordinator may: records without a key, which a topic that was not compacted before can have.
        batch = build_batch([(NOW_MS + index, key, value, ()) for index, (key, value) in enumerate(rows)], **fields)
        self.log.append_as_follower(_at(batch, self.log.log_end_offset))
        self.log.high_watermark_to_end()

    def append_raw(self, batch: bytearray) -> None:
        self.log.append_as_leader(batch, 0, is_client=False)
        self.log.high_watermark_to_end()

    def clean(self) -> CleaningResult | None:
        self.log.roll()
        self.log.flush()
        return clean(self.log, self.files, self.clock.now_ms())

    def headers(self) -> list[BatchHeader]:
        return [header for segment in self.log.segments for _, header, _ in segment_batches(segment)]

    def records(self) -> list[Record]:
        return all_records(self.log)

    def bytes(self) -> bytes:
        return b"".join(segment.file().read_at(segment.size, 0) for segment in self.log.segments)


def _at(batch: bytearray, offset: int) -> bytearray:
    batch[:8] = offset.to_bytes(8, "big")
    return batch


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_keeps_its_range_and_codec_when_it_loses_records(codec: Codec) -> None:
    log = Cleaned()
    log.append((b"a", b"1"), (b"b", b"2"), (b"c", b"3"), codec=codec)
    log.append((b"a", b"4"), (b"c", b"5"))
    result = log.clean()
    assert result is not None
    assert (result.records_removed, result.end_offset) == (2, 5)
    first, second = log.headers()
    assert (first.base_offset, first.last_offset_delta, first.count, first.codec) == (0, 2, 1, codec)
    assert (first.base_timestamp, first.max_timestamp) == (NOW_MS, NOW_MS + 1)
    assert second.count == 2
    assert [(record.offset, record.timestamp, record.value) for record in log.records()] == [
        (1, NOW_MS + 1, b"2"),
        (3, NOW_MS, b"4"),
        (4, NOW_MS + 1, b"5"),
    ]


def test_what_loses_nothing_is_not_written_again() -> None:
    log = Cleaned()
    log.append((b"a", b"1"), (b"b", b"2"), codec=Codec.GZIP)
    log.append((b"c", b"3"))
    before, segment = log.bytes(), log.log.segments.first
    result = log.clean()
    assert result is not None
    assert (result.bytes_in, result.bytes_out, result.records_removed) == (len(before), len(before), 0)
    assert log.bytes() == before
    assert log.log.segments.first is segment
    assert not [name for name in log.files.names(log.log.directory) if ".cleaned" in name]


def test_a_tombstone_stays_for_its_time_and_has_the_horizon_in_its_batch() -> None:
    log = Cleaned(delete_retention_ms=DAY_MS)
    log.append((b"a", b"1"), (b"b", b"2"))
    log.append((b"a", None), (b"c", b"3"))
    log.clock.advance(1_000)
    log.clean()
    horizon = log.clock.now_ms() + DAY_MS
    batch = log.headers()[1]
    assert batch.attributes & DELETE_HORIZON
    assert (batch.base_timestamp, batch.max_timestamp) == (horizon, NOW_MS + 1)
    assert [(record.key, record.timestamp) for record in log.records()] == [
        (b"b", NOW_MS + 1),
        (b"a", NOW_MS),
        (b"c", NOW_MS + 1),
    ]
    log.clock.advance(DAY_MS - 1)
    log.append((b"x", b"9"))
    log.clean()
    assert log.headers()[1].base_timestamp == horizon, "it is set once"
    assert b"a" in [record.key for record in log.records()]
    log.clock.advance(1)
    log.append((b"x", b"9"))
    log.clean()
    assert [record.key for record in log.records()] == [b"b", b"c", b"x"]


def test_a_retention_without_end_is_a_horizon_that_never_comes() -> None:
    log = Cleaned(delete_retention_ms=2**63 - 1)
    log.append((b"a", None))
    log.clean()
    assert log.headers()[0].base_timestamp == HORIZON_MAX
    assert log.records() == [Record(0, NOW_MS, b"a", None)]


def test_records_without_a_key_go() -> None:
    log = Cleaned()
    log.append((None, b"1"), (b"b", b"2"))
    result = log.clean()
    assert result is not None
    assert (result.records_removed, result.keyless_removed) == (1, 1)
    assert [record.key for record in log.records()] == [b"b"]


def test_the_last_batch_of_a_producer_stays_as_an_empty_one() -> None:
    log = Cleaned()
    log.append_raw(sent_by(7, 0, 2))
    log.append_raw(sent_by(8, 0, 2))
    log.append_raw(sent_by(7, 2, 2))
    log.append((b"key-0", b"x"), (b"key-1", b"y"))
    log.clean()
    headers = [(batch.producer_id, batch.base_sequence, batch.last_sequence, batch.count) for batch in log.headers()]
    assert headers == [(8, 0, 1, 0), (7, 2, 3, 0), (-1, -1, -1, 2)]
    log.log.producers.producers.clear()
    log.append((b"z", b"z"))
    log.clean()
    assert [batch.producer_id for batch in log.headers()] == [-1, -1], "nobody remembers them any more"


def test_a_marker_goes_after_its_records_and_its_horizon() -> None:
    log = Cleaned(delete_retention_ms=DAY_MS)
    log.append_raw(sent_by(7, 0, 1, transactional=True))
    log.append_raw(marker_of(7, commit=True))
    log.append_raw(sent_by(7, 1, 1, transactional=True))
    log.append_raw(marker_of(7, commit=False, timestamp=NOW_MS + 5))
    log.append((b"key-0", b"later"))
    log.log.producers.producers.clear()
    log.clean()
    assert [batch.is_control for batch in log.headers()] == [True, True, False], "their records went just now"
    assert len(log.log.aborted_transactions(0, 5)) == 1
    log.append((b"a", b"1"))
    log.clean()
    horizon = log.clock.now_ms() + DAY_MS
    assert [batch.base_timestamp for batch in log.headers() if batch.is_control] == [horizon, horizon]
    assert log.log.aborted_transactions(0, 5) == []
    log.clock.advance(DAY_MS)
    log.append((b"a", b"2"))
    log.clean()
    assert [batch.is_control for batch in log.headers()] == [False, False]


def test_a_marker_stays_as_long_as_its_transaction_has_records() -> None:
    log = Cleaned(delete_retention_ms=DAY_MS)
    for sequence, key in enumerate((b"a", b"b")):
        log.append((key, b"1"), producer_id=7, producer_epoch=0, base_sequence=sequence, transactional=True)
        log.append_raw(marker_of(7, commit=True, timestamp=NOW_MS + sequence))
    for _ in range(3):
        log.append((b"x", b"1"))
        log.clean()
        log.clock.advance(DAY_MS)
    assert [batch.is_control for batch in log.headers()] == [False, True, False, True, False]
    log.append((b"a", b"2"))
    for _ in range(3):
        log.append((b"x", b"1"))
        log.clean()
        log.clock.advance(DAY_MS)
    assert [batch.base_offset for batch in log.headers()] == [2, 3, 7, 10], "the records of the first went"


def test_a_marker_stays_with_the_empty_batch_of_its_transaction() -> None:
    """Without it, the transaction would be open again were the producers read from the log."""
    log = Cleaned(delete_retention_ms=DAY_MS)
    log.append((b"a", b"1"), producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    log.append_raw(marker_of(7, commit=False))
    log.append_raw(marker_of(7, commit=True, timestamp=NOW_MS + 1))
    for _ in range(3):
        log.append((b"x", b"1"))
        log.clean()
        log.clock.advance(DAY_MS)
    assert [(batch.base_offset, batch.count) for batch in log.headers()][:3] == [(0, 0), (1, 1), (2, 1)]


def test_what_was_aborted_behind_the_end_of_a_clean_stays_hidden() -> None:
    """The map is full after one key; the rest of the segment is copied with what says that it was aborted."""
    log = Cleaned()
    log.append((b"a", b"1"), (b"a", b"2"), (b"b", b"1"))
    log.append((b"c", b"1"), producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    log.append_raw(marker_of(7, commit=False))
    log.log.roll()
    log.log.flush()
    result = clean(log.log, log.files, NOW_MS, CleanerLimits(dedupe_buffer_size=0, load_factor=0.0))
    assert result is not None
    assert (result.end_offset, result.records_removed) == (2, 1)
    assert [record.key for record in log.records()][:3] == [b"a", b"b", b"c"]
    assert [(one.first_offset, one.last_offset) for one in log.log.aborted_transactions(0, 5)] == [(3, 4)]


def test_the_last_marker_of_a_producer_stays_as_long_as_it_is_remembered() -> None:
    """A producer that was fenced has an epoch from nothing but its marker."""
    log = Cleaned(delete_retention_ms=DAY_MS)
    log.append_raw(marker_of(7, commit=False, epoch=3))
    for _ in range(3):
        log.append((b"a", b"1"))
        log.clean()
        log.clock.advance(DAY_MS)
    assert log.headers()[0].is_control
    assert not log.headers()[0].has_delete_horizon


def test_the_last_batch_of_a_producer_keeps_its_time() -> None:
    log = Cleaned()
    log.append_raw(sent_by(7, 0, 2))
    log.append_raw(sent_by(-1, -1, 2, epoch=-1))
    log.append((b"key-1", b"later"))
    log.clean()
    # Of both batches the record with the largest timestamp is gone.
    assert [(batch.producer_id, batch.count) for batch in log.headers()[:2]] == [(7, 0), (-1, 1)]
    assert [batch.max_timestamp for batch in log.headers()[:2]] == [NOW_MS + 1, NOW_MS]


def test_damage_ends_a_clean_with_file_and_position() -> None:
    log = Cleaned()
    log.append((b"a", b"1"))
    log.append((b"a", b"2"))
    position = log.headers()[0].size
    log.log.roll()
    log.log.flush()
    path = log.log.segments.first.path
    log.files.open(path, writable=True).write_at(b"\xff", position + 65)
    with pytest.raises(CleaningError, match=f"{path}, position {position}: .*checksum"):
        clean(log.log, log.files, NOW_MS)
    assert not [name for name in log.files.names(log.log.directory) if ".cleaned" in name]


def test_records_that_can_not_be_read_are_damage_too() -> None:
    log = Cleaned()
    batch = build_batch([(NOW_MS, b"a", b"1", ())], codec=Codec.GZIP)
    log.log.append_as_follower(_at(_with_bad_body(batch), 0))
    log.log.high_watermark_to_end()
    log.log.roll()
    log.log.flush()
    with pytest.raises(CleaningError, match=r"\.log, position 0: .*gzip"):
        clean(log.log, log.files, NOW_MS)


def _with_bad_body(batch: bytearray) -> bytearray:
    from tests.storage.builders import with_body

    return with_body(batch, b"this is not gzip")


def test_every_byte_is_throttled() -> None:
    log = Cleaned()
    for number in range(3_000):
        log.append((b"k%d" % (number % 10), b"x" * 50))
    log.log.roll()
    log.log.flush()
    part = cleanable_part(log_view(log.log), NOW_MS)
    seen: list[int] = []
    throttle: Callable[[int], None] = seen.append
    answers = list(LogCleaning(log.files, PreparedClean(log.log, part, SMALL, NOW_MS).job, throttle).run())
    group, result = answers
    assert isinstance(group, CleanedGroup)
    assert isinstance(result, CleaningResult)
    # Everything is read twice, for the map and for the copy, and what is kept is written once.
    everything = 2 * result.bytes_in + result.bytes_out
    assert everything - 64 * 1024 - 200 <= sum(seen) <= everything
