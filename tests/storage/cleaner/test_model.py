"""The cleaner against the model: any history, cleaned again and again; and a crash at every step of a clean."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.records.codecs import Codec
from barnabas.storage.cleaner.preparation import CleanerLimits
from tests.storage.cleaner.cleaning_words import SMALL
from tests.storage.cleaner.model import RETENTION_MS, History, all_data, facts, plain
from tests.storage.memory_files import (
    BYTES_ONLY,
    EVERYTHING,
    NAMES_ONLY,
    SYNCED_ONLY,
    TORN_GARBAGE,
    DiskStoppedError,
    Keep,
    MemoryFiles,
)

KEYS = st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=4)
CODECS = st.sampled_from(list(Codec))
OLD_SETS = st.lists(
    st.tuples(
        st.sampled_from([0, 1]), st.sampled_from([Codec.NONE, Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]), KEYS
    ),
    max_size=4,
)
Step = Callable[[History], object]


def _append(keys: list[tuple[int, bool]], codec: Codec, producer_id: int) -> Step:
    return lambda history: history.append(keys, codec, producer_id)


def _transactional(keys: list[tuple[int, bool]], codec: Codec, producer_id: int) -> Step:
    return lambda history: history.append(keys, codec, producer_id, transactional=True)


def _end(producer_id: int, commit: bool) -> Step:
    return lambda history: history.end_transaction(producer_id, commit=commit)


def _fence(producer_id: int) -> Step:
    return lambda history: history.fence(producer_id)


def _clean(history: History) -> None:
    history.clean()
    history.check()


def _restart(is_clean: bool) -> Step:
    return lambda history: history.restart(is_clean=is_clean)


STEPS = st.one_of(
    st.builds(_append, KEYS, CODECS, st.sampled_from([-1, -1, 1, 2])),
    st.builds(_transactional, KEYS, CODECS, st.sampled_from([11, 12, 13])),
    st.builds(_transactional, KEYS, CODECS, st.sampled_from([11, 12, 13])),
    st.builds(_end, st.sampled_from([11, 12, 13]), st.booleans()),
    st.builds(_fence, st.sampled_from([11, 12, 13])),
    st.just(_clean),
    st.builds(
        lambda ms: lambda history: history.clock.advance(ms), st.sampled_from([1, RETENTION_MS // 2, RETENTION_MS])
    ),
    st.builds(_restart, st.booleans()),
)


def a_disk() -> MemoryFiles:
    files = MemoryFiles()
    files.make_directory("/data")
    return files


@given(st.lists(STEPS, min_size=12, max_size=40), OLD_SETS, st.sampled_from([3, 64]))
def test_any_history_is_cleaned_as_the_model_says(
    steps: list[Step], old: list[tuple[int, Codec, list[tuple[int, bool]]]], keys_max: int
) -> None:
    """Keys, tombstones, transactions, idempotent producers, all codecs, old formats, restarts, and a map too small."""
    limits = CleanerLimits(dedupe_buffer_size=24 * 64, io_buffer_size=256, load_factor=keys_max / 64)
    history = History(a_disk(), limits=limits)
    if old:
        history.append_old_format(old)
    for step in steps:
        step(history)
    for _ in range(4):
        # Horizons pass, and there is always something to clean.
        history.clock.advance(RETENTION_MS)
        history.append([(6, False)])
        history.clean()
        history.check()
    before = facts(history.log.producers)
    for is_clean in (False, True):
        history.restart(is_clean=is_clean)
        history.check()
        assert facts(history.log.producers) == before


def a_busy_history(files: MemoryFiles) -> History:
    """Every kind of record, some of it cleaned before, the rest dirty."""
    history = History(files, limits=SMALL)
    history.append_old_format([(0, Codec.NONE, [(1, False), (2, True)]), (1, Codec.GZIP, [(1, False), (3, False)])])
    history.append([(1, False), (2, False)], producer_id=1)
    history.append([(4, False), (4, True)], Codec.LZ4, 11, transactional=True)
    history.append([(3, False)], Codec.ZSTD)
    history.end_transaction(11, commit=True)
    history.append([(5, False), (1, True)], producer_id=12, transactional=True)
    history.end_transaction(12, commit=False)
    history.clean()
    history.append([(2, True), (5, False)], Codec.SNAPPY, 1)
    history.append([(0, False)] * 3, Codec.GZIP, 12, transactional=True)
    history.append([(4, False)], Codec.NONE, 11, transactional=True)
    history.end_transaction(12, commit=False)
    history.end_transaction(11, commit=True)
    history.append([(1, False), (0, False)])
    history.fence(13)
    history.clock.advance(RETENTION_MS)
    return history


def steps_of_a_clean() -> tuple[int, int]:
    files = a_disk()
    history = a_busy_history(files)
    history.log.roll()
    history.log.flush()
    first = files.steps
    history.clean()
    return first, files.steps


FIRST_STEP, LAST_STEP = steps_of_a_clean()


@pytest.mark.parametrize("keep", [EVERYTHING, SYNCED_ONLY, NAMES_ONLY, BYTES_ONLY, TORN_GARBAGE], ids=str)
def test_a_crash_at_any_step_of_a_clean_loses_nothing(keep: Keep) -> None:
    """What is found is what was there or what a clean leaves, without a hole; and the next clean does its work."""
    assert LAST_STEP - FIRST_STEP > 30, "the history should have something to swap"
    for step in range(FIRST_STEP, LAST_STEP):
        files = a_disk()
        history = a_busy_history(files)
        history.log.roll()
        history.log.flush()
        known, before = history.last_known(), history.alive()
        producers = facts(history.log.producers)
        first_dirty = max(history.log.first_dirty_offset, 0)
        files.stop_at_step = step
        with pytest.raises(DiskStoppedError):
            history.clean()
        files.stop_at_step = None
        found = history.after_crash(keep, known)
        found.check_rest()
        assert facts(found.log.producers) == producers
        end_offset = found.log.segments.last.base_offset
        survivors = plain(all_data(found.log))
        assert set(survivors) <= set(before)
        found.clean_model(first_dirty, end_offset)
        assert set(found.alive()) <= set(survivors)
        assert not [name for name in found.files.names("/data/orders-0") if name.endswith((".cleaned", ".swap"))]
        found.clock.jump_to(history.clock.now_ms())
        result = found.clean()
        assert result is not None
        found.check()
