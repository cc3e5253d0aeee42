"""The append of plain batches: it does what the long way does, compiled and not, and leaves the rest to that one."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.config import LONG_MAX, LogConfig
from barnabas.records.builder import OwnBatch, build_batch, own_marker
from barnabas.records.codecs import Codec
from barnabas.storage import log_end
from barnabas.storage.log import OFFSET_END, Log
from barnabas.wire.errors import ApiError, ErrorCode
from tests.records.conftest import load_fallback
from tests.storage.builders import NOW_MS, batch_of, marker_of, sent_by, with_body, with_fields
from tests.storage.building import a_log, bases, fill, records
from tests.storage.memory_files import MemoryFiles

FALLBACK = load_fallback("log_end", "storage")
MODULES = [log_end, FALLBACK]
FIELDS = [name for name, value in vars(FALLBACK.LogEnd).items() if value == 0]
"""Those that are declared; a class that is not compiled has their beginning as attributes."""


def test_it_is_compiled_where_tests_are_trusted() -> None:
    assert not FALLBACK.COMPILED
    if not log_end.COMPILED and os.environ.get("CI") != "true":
        pytest.skip("The end of a log is not compiled here: `make setup` says why.")
    assert log_end.COMPILED


def append_plain(
    module: ModuleType, log: Log, batch: bytes | bytearray, epoch: int = 0, *, is_admitted: bool = False
) -> int:
    """Append a batch in the middle of other bytes, as it lies in a receive buffer."""
    data = memoryview(bytearray(b"\xee" * 7) + batch + b"\xee" * 3)
    with end_of(module, log) as end:
        first_offset: int = end.append_plain(data, 7, 7 + len(batch), epoch, NOW_MS, is_admitted)
    return first_offset


def append_own_plain(module: ModuleType, log: Log, own: OwnBatch, epoch: int = 0) -> int:
    with end_of(module, log) as end:
        size: int = end.append_own_plain(own, epoch)
    return size


def append_own_long(log: Log, own: OwnBatch, epoch: int = 0) -> None:
    log.takes_plain = False
    log.append_own(own, epoch)
    log.takes_plain = log.config.takes_plain


@contextmanager
def end_of(module: ModuleType, log: Log) -> Iterator[Any]:
    """The end of a log in either form; one that is not compiled gets all it knows from the log, and gives it back."""
    if module is log_end:
        yield log
        return
    end = FALLBACK.LogEnd()
    for name in FIELDS:
        if not name.startswith("_"):
            setattr(end, name, getattr(log, name))
    end.high_watermark = log.high_watermark
    yield end
    log.end_offset, log.is_touched, log.high_watermark = end.end_offset, end.is_touched, end.high_watermark


def append_long(log: Log, batch: bytes | bytearray) -> int:
    try:
        first_offset = log.append_as_leader(bytes(batch), 0).first_offset
    except ApiError:
        return -1
    log.high_watermark_to_end()
    return first_offset


def append_either(module: ModuleType, log: Log, batch: bytes | bytearray, *, is_admitted: bool = False) -> int:
    first_offset = append_plain(module, log, batch, is_admitted=is_admitted)
    return append_long(log, batch) if first_offset < 0 else first_offset


def state_of(log: Log, files: MemoryFiles) -> dict[str, Any]:
    segments = [
        (
            segment.base_offset,
            segment.size,
            segment.largest,
            segment.bytes_since_entry,
            segment.offset_index.entry_count,
            segment.offset_index.last_offset,
            segment.time_index.last,
            segment.file().read_at(segment.size, 0),
        )
        for segment in log.segments
    ]
    return {
        "segments": segments,
        "end": (log.log_end, log.log_end_offset, log.high_watermark),
        "producers": {
            number: {name: getattr(entry, name) for name in entry.__slots__}
            for number, entry in log.producers.producers.items()
        },
        "transactions": (
            log.producers.first_unstable_offset,
            log.producers.unreplicated,
            log.aborted_transactions(0, log.log_end_offset),
        ),
        "files": sorted(files.names("/data/orders-0")),
    }


def rows(draw: Any) -> list[Any]:
    base = draw(st.sampled_from([NOW_MS, NOW_MS - 50, NOW_MS + 10**7, 0, -1, 2**62 + 5]))
    return [
        (
            base + draw(st.integers(-3, 3)),
            draw(st.sampled_from([None, b"", b"key"])),
            b"v" * draw(st.integers(0, 150)),
            (),
        )
        for _ in range(draw(st.integers(1, 4)))
    ]


@st.composite
def batches(draw: Any) -> bytearray:
    """Mostly plain batches, and some that differ in one thing."""
    kind = draw(st.sampled_from(["plain", "plain", "plain", "rows", "codec", "producer", "marker", "header", "bytes"]))
    if kind == "codec":
        return batch_of(3, codec=draw(st.sampled_from([Codec.GZIP, Codec.LZ4])))
    if kind == "producer":
        return sent_by(draw(st.integers(1, 2)), draw(st.integers(0, 2)), 2)
    if kind == "marker":
        return marker_of(7, commit=True)
    batch = (
        build_batch(rows(draw)) if kind == "rows" else batch_of(draw(st.integers(1, 5)), size=draw(st.integers(0, 90)))
    )
    if kind == "header":
        field = draw(st.sampled_from(["attributes", "last_offset_delta", "count", "max_timestamp", "magic", "crc"]))
        return with_fields(batch, **{field: draw(st.integers(0, 120))})
    if kind == "bytes":
        place = draw(st.integers(17, len(batch) - 1))
        batch[place] ^= draw(st.integers(1, 255))
    return batch


CONFIGS = [
    {},
    {"segment_bytes": 700},
    {"index_interval_bytes": 100, "segment_index_bytes": 40},
    {"max_message_bytes": 250},
    {"cleanup_policy": ("compact",)},
    {"message_timestamp_type": "LogAppendTime"},
    {"message_timestamp_before_max_ms": 40, "message_timestamp_after_max_ms": 1000},
    {"compression_type": "gzip"},
    {"compression_type": "uncompressed"},
    {"segment_ms": 20},
]


@pytest.mark.parametrize("module", MODULES)
@given(sent=st.lists(batches(), min_size=1, max_size=12), config=st.sampled_from(CONFIGS))
def test_the_short_way_and_the_long_way_make_the_same_log(
    module: ModuleType, sent: list[bytearray], config: dict[str, Any]
) -> None:
    short_files, long_files = MemoryFiles(), MemoryFiles()
    short, long = (a_log(files, "/data/orders-0", **config) for files in (short_files, long_files))
    for batch in sent:
        assert append_either(module, short, batch) == append_long(long, batch)
        assert state_of(short, short_files) == state_of(long, long_files)
    short.close()
    long.close()
    assert state_of(a_log(short_files, "/data/orders-0"), short_files) == state_of(
        a_log(long_files, "/data/orders-0"), long_files
    )


SEQUENCES = 2**31
HISTORY = st.lists(
    st.tuples(
        st.integers(1, 2),
        st.sampled_from(
            [
                *("next", "next", "again", "gap", "epoch", "old epoch", "restart"),
                *("transaction", "admitted", "admitted", "marker", "marker"),
                *("marker of the next epoch", "marker of an old coordinator"),
            ]
        ),
        st.integers(1, 3),
    ),
    max_size=25,
)


@pytest.mark.parametrize("module", MODULES)
@given(history=HISTORY, first=st.sampled_from([0, SEQUENCES - 3]), config=st.sampled_from(CONFIGS[:3]))
def test_producers_are_remembered_by_the_short_way_as_by_the_long_way(
    module: ModuleType, history: list[tuple[int, str, int]], first: int, config: dict[str, Any]
) -> None:
    short_files, long_files = MemoryFiles(), MemoryFiles()
    short, long = (a_log(files, "/data/orders-0", **config) for files in (short_files, long_files))
    following, epochs, last = {1: first, 2: 0}, {1: 1, 2: 1}, {1: sent_by(1, 0), 2: sent_by(2, 0)}
    for producer, kind, count in history:
        batch = sent_by(producer, following[producer], count, epoch=epochs[producer])
        if kind == "again":
            batch = last[producer]
        elif kind == "gap":
            batch = sent_by(producer, (following[producer] + 5) % SEQUENCES, count, epoch=epochs[producer])
        elif kind == "epoch":
            epochs[producer] += 1
            batch = sent_by(producer, 0, count, epoch=epochs[producer])
            following[producer] = 0
        elif kind == "old epoch":
            batch = sent_by(producer, following[producer], count, epoch=epochs[producer] - 1)
        elif kind in ("transaction", "admitted"):
            batch = sent_by(producer, following[producer], count, epoch=epochs[producer], transactional=True)
        elif kind.startswith("marker"):
            if kind == "marker of the next epoch":  # As every end of a transaction is with KIP-890.
                epochs[producer] += 1
                following[producer] = 0
            end_either(module, short, long, (producer, epochs[producer]), count, is_old=kind.endswith("coordinator"))
            assert state_of(short, short_files) == state_of(long, long_files)
            continue
        elif kind == "restart":
            short.close()
            long.close()
            short, long = (a_log(files, "/data/orders-0", **config) for files in (short_files, long_files))
            short.high_watermark_to_end()
            long.high_watermark_to_end()
            continue
        before = short.log_end_offset
        taken = append_either(module, short, batch, is_admitted=kind == "admitted")
        assert taken == append_long(long, batch)
        if short.log_end_offset > before and kind != "again":
            following[producer] = (following[producer] + count) % SEQUENCES
            last[producer] = batch
        assert state_of(short, short_files) == state_of(long, long_files)


def end_either(
    module: ModuleType, short: Log, long: Log, producer: tuple[int, int], count: int, *, is_old: bool
) -> None:
    """Append a marker to two logs, to one of them the short way if that takes it; the other way both do the same."""
    marker = own_marker(
        commit=count > 1, timestamp=NOW_MS + count, producer=producer, coordinator_epoch=1 if is_old else 2
    )
    refusals: list[ErrorCode | None] = []
    for log in (short, long):
        try:
            if log is long or append_own_plain(module, log, marker) < 0:
                append_own_long(log, marker)
            refusals.append(None)
        except ApiError as error:
            refusals.append(error.code)
    assert refusals[0] == refusals[1]
    # Readers see transactions as decided when the high watermark has passed the marker.
    assert short.producers.unreplicated == long.producers.unreplicated
    short.high_watermark_to_end()
    long.high_watermark_to_end()


@pytest.mark.parametrize("module", MODULES)
def test_batches_that_follow_each_other_go_the_short_way(module: ModuleType, memory_files: MemoryFiles) -> None:
    log = a_log(memory_files, "/data/orders-0")
    fill(log, 2)
    end = log.log_end_offset
    assert append_plain(module, log, sent_by(1, 0, 2)) == -1, "nothing is known of this producer"
    append_long(log, sent_by(1, 0, 2))
    assert append_plain(module, log, sent_by(1, 2, 3)) == end + 2
    assert append_plain(module, log, sent_by(1, 2, 3)) == -1, "it was sent before"
    assert append_plain(module, log, sent_by(1, 7)) == -1, "some are missing"
    assert append_plain(module, log, sent_by(1, 5, epoch=1)) == -1, "another epoch starts at 0"
    assert append_plain(module, log, sent_by(1, 5, transactional=True)) == -1, "it opens a transaction"
    assert append_plain(module, log, sent_by(1, 5), is_admitted=True) == end + 5, "it is not in a transaction"
    assert append_plain(module, log, sent_by(1, 6, transactional=True), is_admitted=True) == end + 6
    assert append_plain(module, log, sent_by(1, 7), is_admitted=True) == -1, "it is not in the transaction"
    assert append_plain(module, log, sent_by(1, 7, transactional=True)) == end + 7
    assert log.last_stable.message_offset == end + 6


@pytest.mark.parametrize("module", MODULES)
def test_transactions_are_committed_the_short_way_and_aborted_the_long_way(
    module: ModuleType, memory_files: MemoryFiles
) -> None:
    log = a_log(memory_files, "/data/orders-0")
    fill(log, 2)
    append_long(log, sent_by(1, 0))
    end = log.log_end_offset
    for number, is_commit in enumerate((True, True, False, True)):
        epoch = number  # Each marker has the next one, and the sequence numbers begin anew.
        sequence = 0 if number else 1
        batch = sent_by(1, sequence, epoch=epoch, transactional=True)
        assert append_plain(module, log, batch, is_admitted=True) == end
        marker = own_marker(commit=is_commit, timestamp=NOW_MS, producer=(1, epoch + 1), coordinator_epoch=0)
        assert (append_own_plain(module, log, marker) > 0) is is_commit
        if not is_commit:
            append_own_long(log, marker)
        assert log.last_stable.message_offset == end, "the high watermark has not passed the marker"
        log.high_watermark_to_end()
        end += 2
        assert log.last_stable.message_offset == log.log_end_offset == end
    assert append_own_plain(module, log, marker) == -1, "there is nothing to commit"


@pytest.mark.parametrize("module", MODULES)
def test_plain_batches_do_go_the_short_way(module: ModuleType, memory_files: MemoryFiles) -> None:
    log = a_log(memory_files, "/data/orders-0")
    fill(log, 2)  # When the first batch was written is found out with the second.
    for number in range(50):
        assert append_plain(module, log, batch_of(3, size=100)) == 6 + 3 * number
    assert log.high_watermark == log.log_end
    assert log.segments.last.offset_index.entry_count > 3


NOT_PLAIN = {
    "compressed": batch_of(2, codec=Codec.GZIP),
    "of an idempotent producer": sent_by(1, 0),
    "a marker": marker_of(1, commit=True),
    "with a wrong checksum": with_fields(batch_of(), crc=1),
    "without timestamps": batch_of(timestamp=-1),
    "with a timestamp that is far away": batch_of(timestamp=2**62),
    "with a header that says another timestamp": with_fields(batch_of(), max_timestamp=NOW_MS + 1),
    "with records that are cut off": with_body(batch_of(2), bytes(batch_of(2)[61:-3])),
    "of another magic": with_fields(batch_of(), magic=3),
    "that is larger than it says": batch_of() + b"\0",
}


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("batch", NOT_PLAIN.values(), ids=NOT_PLAIN)
def test_what_is_not_plain_is_left_to_the_long_way(
    module: ModuleType, memory_files: MemoryFiles, batch: bytearray
) -> None:
    log = a_log(memory_files, "/data/orders-0")
    fill(log, 2)
    before = state_of(log, memory_files)
    assert append_plain(module, log, batch) == -1
    assert state_of(log, memory_files) == before


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize(
    "config",
    [
        {"compression_type": "lz4"},
        {"message_timestamp_type": "LogAppendTime"},
        {"flush_messages": 1},
        {"min_insync_replicas": 2},
        {"max_message_bytes": 60},
        {"segment_bytes": 350},
        {"message_timestamp_after_max_ms": 5},
    ],
)
def test_a_topic_that_wants_more_is_left_to_the_long_way(
    module: ModuleType, memory_files: MemoryFiles, config: dict[str, Any]
) -> None:
    log = a_log(memory_files, "/data/orders-0")
    fill(log, 2)
    log.update_config(LogConfig(**config))
    assert append_plain(module, log, batch_of(timestamp=NOW_MS + 10)) == -1
    log.update_config(LogConfig())
    assert append_plain(module, log, batch_of(timestamp=NOW_MS + 10)) == -1  # It rolls by time, as far as is known.
    append_long(log, batch_of())
    assert append_plain(module, log, batch_of(timestamp=NOW_MS + 10)) == log.log_end_offset - 1


@pytest.mark.parametrize("module", MODULES)
def test_an_epoch_that_is_new_a_log_that_is_closed_and_its_last_offset_are_left_to_the_long_way(
    module: ModuleType, memory_files: MemoryFiles
) -> None:
    log = a_log(memory_files, "/data/orders-0")
    fill(log, 2)
    assert append_plain(module, log, batch_of(), epoch=1) == -1
    log.offset_max = log.log_end_offset + 1
    assert append_plain(module, log, batch_of(3)) == -1
    assert append_plain(module, log, batch_of(2)) == 6
    log.close()
    assert append_plain(module, log, batch_of(2)) == -1
    far = a_log(memory_files, "/data/far-0")
    far.truncate_fully_and_start_at(OFFSET_END - 10)
    fill(far, 2)
    assert append_plain(module, far, batch_of(5)) == -1
    assert append_plain(module, far, batch_of(4)) == OFFSET_END - 4
    assert far.log_end_offset == OFFSET_END
    own = OwnBatch([(b"key", b"value"), (b"key", None)], NOW_MS)
    assert append_own_plain(module, far, own) == -1
    assert far.log_end_offset == OFFSET_END


@pytest.mark.parametrize("module", MODULES)
def test_a_segment_whose_records_span_long_enough_is_rolled_whatever_its_limit(
    module: ModuleType, memory_files: MemoryFiles
) -> None:
    log = a_log(memory_files, "/data/orders-0", segment_ms=LONG_MAX)
    fill(log, 2)
    assert append_plain(module, log, batch_of(timestamp=NOW_MS + 10**6)) == 6
    log.update_config(LogConfig(segment_ms=1000))
    append_long(log, batch_of())
    assert append_plain(module, log, batch_of(timestamp=NOW_MS + 1001)) == -1
    append_long(log, batch_of(timestamp=NOW_MS + 1001))
    assert bases(log) == [0, 8]


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("after_bytes", [0, 30])
def test_a_write_that_fails_leaves_the_log_as_it_was(
    module: ModuleType, memory_files: MemoryFiles, after_bytes: int
) -> None:
    log = a_log(memory_files, "/data/orders-0", index_interval_bytes=0)
    fill(log, 3)
    before = state_of(log, memory_files)
    memory_files.fail_next_write(errno.ENOSPC, after_bytes=after_bytes)
    with pytest.raises(OSError, match="No space left"):
        append_plain(module, log, records(3, timestamp=NOW_MS + 5))
    after = state_of(log, memory_files)
    for one in (before, after):
        one["segments"] = [(*segment[:3], *segment[4:]) for segment in one["segments"]]  # It counts anew for the index.
    assert after == before
    assert append_plain(module, log, records(3)) == 9


OWN = st.builds(
    lambda records, timestamp: OwnBatch(records, timestamp),
    records=st.lists(st.tuples(st.binary(max_size=20), st.none() | st.binary(max_size=90)), min_size=1, max_size=4),
    timestamp=st.sampled_from([NOW_MS, NOW_MS + 5, NOW_MS - 5, NOW_MS + 100]),
)


@pytest.mark.parametrize("module", MODULES)
@given(own=st.lists(OWN, min_size=1, max_size=15), config=st.sampled_from(CONFIGS), epochs=st.integers(0, 2))
def test_batches_of_the_broker_itself_make_the_same_log_either_way(
    module: ModuleType, own: list[OwnBatch], config: dict[str, Any], epochs: int
) -> None:
    short_files, long_files = MemoryFiles(), MemoryFiles()
    short, long = (a_log(files, "/data/orders-0", **config) for files in (short_files, long_files))
    for number, batch in enumerate(own):
        epoch = number * epochs // len(own)
        before = short.size_bytes
        taken = append_own_plain(module, short, batch, epoch)
        assert taken in (-1, short.size_bytes - before)
        if taken < 0:
            append_own_long(short, batch, epoch)
        append_own_long(long, batch, epoch)
        assert state_of(short, short_files) == state_of(long, long_files)
        assert short.leader_epochs.entries == long.leader_epochs.entries


@pytest.mark.parametrize("module", MODULES)
def test_batches_of_the_broker_itself_do_go_the_short_way(module: ModuleType, memory_files: MemoryFiles) -> None:
    log = a_log(memory_files, "/data/orders-0")
    fill(log, 2)
    for end_offset in (8, 10, 12):
        before = log.size_bytes
        size = append_own_plain(module, log, OwnBatch([(b"key", b"value"), (b"key", None)], NOW_MS))
        assert (log.log_end_offset, log.size_bytes) == (end_offset, before + size)
    assert log.high_watermark.message_offset == 6


@pytest.mark.parametrize("module", MODULES)
def test_a_batch_of_the_broker_itself_that_can_not_be_written_leaves_the_log_as_it_was(
    module: ModuleType, memory_files: MemoryFiles
) -> None:
    log = a_log(memory_files, "/data/orders-0")
    fill(log, 2)
    append_long(log, sent_by(1, 0, transactional=True))
    before = state_of(log, memory_files)
    marker = own_marker(commit=True, timestamp=NOW_MS, producer=(1, 0), coordinator_epoch=0)
    for own in (OwnBatch([(b"key", b"value")], NOW_MS), marker):
        memory_files.fail_next_write(errno.ENOSPC, after_bytes=30)
        with pytest.raises(OSError, match="No space left"):
            append_own_plain(module, log, own)
        after = state_of(log, memory_files)
        for one in (before, after):
            one["segments"] = [segment[:3] for segment in one["segments"]]
        assert after == before
        assert append_own_plain(module, log, own) > 0
        before = state_of(log, memory_files)


@pytest.mark.parametrize("module", MODULES)
def test_a_segment_that_was_cut_to_nothing_is_rolled_by_its_new_records(
    module: ModuleType, memory_files: MemoryFiles
) -> None:
    log = a_log(memory_files, "/data/orders-0", segment_ms=1000)
    fill(log, 2)
    log.roll()
    fill(log, 2)
    log.truncate_to(6)
    for timestamp in (NOW_MS + 5000, NOW_MS + 5001, NOW_MS + 5999, NOW_MS + 6001):
        append_either(module, log, batch_of(timestamp=timestamp))
    assert bases(log) == [0, 6, 9]
