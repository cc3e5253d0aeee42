"""LeaderEpochs: where each leader's records start and end, as Kafka's LeaderEpochFileCache answers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.storage.checkpoint import CheckpointError
from barnabas.storage.files import read_whole, write_whole
from barnabas.storage.leader_epochs import LeaderEpochs
from tests.storage.memory_files import NAMES_ONLY, SYNCED_ONLY, MemoryFiles

PATH = "/data/leader-epoch-checkpoint"
NOT_KNOWN = (-1, -1)


def epochs_of(files: MemoryFiles, *entries: tuple[int, int]) -> LeaderEpochs:
    epochs = LeaderEpochs(files, "/data")
    for epoch, start_offset in entries:
        epochs.assign(epoch, start_offset)
    epochs.flush()
    return epochs


def reloaded(files: MemoryFiles) -> list[tuple[int, int]]:
    epochs = LeaderEpochs(files, "/data")
    epochs.load()
    return epochs.entries


@pytest.fixture
def documented(memory_files: MemoryFiles) -> LeaderEpochs:
    """The example of the module: epoch 0 starts at 0, epoch 3 at 120, epoch 4 at 155."""
    return epochs_of(memory_files, (0, 0), (3, 120), (4, 155))


# The end of an epoch.


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [
        (0, (0, 120)),
        (1, (0, 120)),
        (2, (0, 120)),
        (3, (3, 155)),
        (4, (4, 160)),
        (5, NOT_KNOWN),
        (-1, NOT_KNOWN),
        (-2, NOT_KNOWN),
        (2**31 - 1, NOT_KNOWN),
    ],
)
def test_the_end_of_an_epoch_is_where_the_next_one_starts(
    documented: LeaderEpochs, epoch: int, answer: tuple[int, int]
) -> None:
    assert documented.end_offset_for(epoch, 160) == answer


def test_an_epoch_before_the_first_ends_where_the_first_starts(memory_files: MemoryFiles) -> None:
    epochs = epochs_of(memory_files, (5, 10), (7, 20))
    assert epochs.end_offset_for(0, 30) == (0, 10)
    assert epochs.end_offset_for(4, 30) == (4, 10)


def test_without_epochs_nothing_is_known(memory_files: MemoryFiles) -> None:
    epochs = epochs_of(memory_files)
    assert epochs.latest == -1
    for epoch in (-1, 0, 5):
        assert epochs.end_offset_for(epoch, 30) == NOT_KNOWN


# New epochs.


def test_the_latest_epoch_is_that_of_the_newest_records(documented: LeaderEpochs) -> None:
    assert documented.latest == 4


def test_an_epoch_that_goes_on_is_not_written_again(memory_files: MemoryFiles) -> None:
    epochs = epochs_of(memory_files, (3, 120))
    steps = memory_files.steps
    epochs.assign(3, 150)
    assert epochs.entries == [(3, 120)]
    assert memory_files.steps == steps


def test_batches_without_an_epoch_say_nothing(memory_files: MemoryFiles) -> None:
    assert epochs_of(memory_files, (-1, 0)).entries == []
    assert not memory_files.exists(PATH)


@pytest.mark.parametrize(
    ("epoch", "start_offset", "entries"),
    [
        (5, 160, [(0, 0), (3, 120), (4, 155), (5, 160)]),
        (9, 155, [(0, 0), (3, 120), (9, 155)]),
        (5, 100, [(0, 0), (5, 100)]),
        (5, 0, [(5, 0)]),
        (3, 200, [(0, 0), (3, 200)]),
        (2, 200, [(0, 0), (2, 200)]),
        (0, 0, [(0, 0)]),
    ],
)
def test_what_contradicts_a_new_epoch_is_forgotten(
    memory_files: MemoryFiles,
    documented: LeaderEpochs,
    epoch: int,
    start_offset: int,
    entries: list[tuple[int, int]],
) -> None:
    documented.assign(epoch, start_offset)
    assert documented.entries == entries
    documented.flush()
    assert reloaded(memory_files) == entries


# Truncation.


@pytest.mark.parametrize(
    ("end_offset", "count"), [(200, 3), (156, 3), (155, 2), (121, 2), (120, 1), (119, 1), (1, 1), (0, 0)]
)
def test_epochs_whose_records_were_cut_off_are_forgotten(
    memory_files: MemoryFiles, documented: LeaderEpochs, end_offset: int, count: int
) -> None:
    documented.truncate_from_end(end_offset)
    assert documented.entries == [(0, 0), (3, 120), (4, 155)][:count]
    assert reloaded(memory_files) == documented.entries


@pytest.mark.parametrize(
    ("start_offset", "entries"),
    [
        (0, [(0, 0), (3, 120), (4, 155)]),
        (50, [(0, 50), (3, 120), (4, 155)]),
        (119, [(0, 119), (3, 120), (4, 155)]),
        (120, [(3, 120), (4, 155)]),
        (130, [(3, 130), (4, 155)]),
        (155, [(4, 155)]),
        (999, [(4, 999)]),
    ],
)
def test_epochs_whose_records_were_deleted_are_forgotten_and_the_next_starts_there(
    memory_files: MemoryFiles, documented: LeaderEpochs, start_offset: int, entries: list[tuple[int, int]]
) -> None:
    documented.truncate_from_start(start_offset)
    assert documented.entries == entries
    documented.flush()
    assert reloaded(memory_files) == entries


def test_a_start_before_the_first_epoch_changes_nothing(memory_files: MemoryFiles) -> None:
    epochs = epochs_of(memory_files, (5, 10))
    epochs.truncate_from_start(3)
    assert epochs.entries == [(5, 10)]


def test_a_log_that_starts_anew_has_no_epochs(memory_files: MemoryFiles, documented: LeaderEpochs) -> None:
    documented.clear()
    assert documented.latest == -1
    assert reloaded(memory_files) == []


def test_truncations_that_change_nothing_write_nothing(memory_files: MemoryFiles, documented: LeaderEpochs) -> None:
    steps = memory_files.steps
    documented.truncate_from_end(156)
    documented.truncate_from_start(0)
    assert memory_files.steps == steps


# The file.


def test_the_file_has_kafka_s_text(memory_files: MemoryFiles, documented: LeaderEpochs) -> None:
    assert read_whole(memory_files, PATH) == b"0\n3\n0 0\n3 120\n4 155\n"
    assert reloaded(memory_files) == documented.entries


def test_entries_of_a_file_that_contradict_each_other_are_sorted_out(memory_files: MemoryFiles) -> None:
    write_whole(memory_files, PATH, b"0\n4\n0 0\n5 100\n3 120\n4 110\n")
    assert reloaded(memory_files) == [(0, 0), (4, 110)]


@pytest.mark.parametrize("text", [b"", b"1\n0\n", b"0\n2\n0 0\n", b"0\n1\n0\n", b"0\n1\n0 x\n", b"0\n1\n0 0", b"\xff"])
def test_a_damaged_file_is_said_so(memory_files: MemoryFiles, text: bytes) -> None:
    write_whole(memory_files, PATH, text)
    epochs = LeaderEpochs(memory_files, "/data")
    with pytest.raises(CheckpointError) as caught:
        epochs.load()
    assert caught.value.path == PATH
    assert epochs.entries == []


def test_an_epoch_is_durable_after_a_flush(memory_files: MemoryFiles, documented: LeaderEpochs) -> None:
    documented.flush()
    documented.assign(5, 200)
    for keep in (SYNCED_ONLY, NAMES_ONLY):
        assert reloaded(memory_files.crash(keep)) == [(0, 0), (3, 120), (4, 155)]
    documented.flush()
    assert reloaded(memory_files.crash(SYNCED_ONLY)) == [(0, 0), (3, 120), (4, 155), (5, 200)]
    steps = memory_files.steps
    documented.flush()
    assert memory_files.steps == steps


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 5)), min_size=1, max_size=30), st.data())
def test_ends_agree_with_the_epoch_of_every_record(steps: list[tuple[int, int]], data: st.DataObject) -> None:
    """A list with one epoch a record says the same as the entries."""
    files = MemoryFiles()
    files.make_directory("/data")
    epochs = LeaderEpochs(files, "/data")
    records: list[int] = []
    epoch = 0
    for bump, count in steps:
        epoch += bump
        epochs.assign(epoch, len(records))
        records += [epoch] * count
    end_offset = data.draw(st.integers(1, len(records)))
    epochs.truncate_from_end(end_offset)
    records = records[:end_offset]
    start_offset = data.draw(st.integers(0, end_offset - 1))
    epochs.truncate_from_start(start_offset)
    epochs.flush()
    records = records[start_offset:]
    assert epochs.latest == records[-1]
    assert reloaded(files) == epochs.entries
    for asked in range(epoch + 2):
        if asked > records[-1]:
            assert epochs.end_offset_for(asked, end_offset) == NOT_KNOWN
            continue
        floor = max((known for known in records if known <= asked), default=asked)
        end = start_offset + sum(1 for known in records if known <= asked)
        assert epochs.end_offset_for(asked, end_offset) == (floor, end)
