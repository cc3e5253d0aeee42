"""The small text files: what is written is read again and is what Kafka writes; damage has a path and a line."""

import json
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.model import TopicPartition
from barnabas.storage.checkpoint import (
    CLEAN_SHUTDOWN_MARKER,
    HIGH_WATERMARK_CHECKPOINT,
    OFFSET_CHECKPOINTS,
    CheckpointError,
    decode_topic_id,
    encode_topic_id,
    iterate_offsets,
    read_epochs,
    read_offsets,
    read_partition_metadata,
    read_properties,
    write_clean_shutdown_marker,
    write_epochs,
    write_offsets,
    write_partition_metadata,
    write_properties,
)
from barnabas.storage.files import SMALL_FILE_BYTES_MAX, OsFiles, read_whole, write_whole
from tests.storage.conftest import Disk
from tests.storage.memory_files import KEEPS, SYNCED_ONLY, DiskStoppedError, MemoryFiles

PATH = "/data/checkpoint"

# 16 bytes in base64 with - and _, without the padding, as Kafka's Uuid class writes them.
KAFKA_TOPIC_ID = UUID("4f1d5c6c-0a4b-4f0e-9b1f-0c8d6f3a2b1e")
KAFKA_TOPIC_ID_TEXT = "Tx1cbApLTw6bHwyNbzorHg"

topics = st.text("abcXYZ0189._-", min_size=1, max_size=12)
offsets = st.dictionaries(
    st.builds(TopicPartition, topics, st.integers(0, 2**31 - 1)), st.integers(0, 2**63 - 1), max_size=8
)


def damaged(files: MemoryFiles, text: bytes) -> CheckpointError:
    """The error that a checkpoint with this text raises."""
    write_whole(files, PATH, text)
    with pytest.raises(CheckpointError) as caught:
        read_offsets(files, PATH)
    assert caught.value.path == PATH
    assert str(caught.value) == f"{PATH}, line {caught.value.line}: {caught.value.reason}"
    return caught.value


# Offsets.


def test_offsets_are_written_in_kafka_s_form(disk: Disk) -> None:
    path = disk.path(HIGH_WATERMARK_CHECKPOINT)
    known = {TopicPartition("orders", 1): 907, TopicPartition("orders", 0): 4821, TopicPartition("a-b.c_d", 12): 0}
    write_offsets(disk.files, path, known)
    assert read_whole(disk.files, path) == b"0\n3\na-b.c_d 12 0\norders 0 4821\norders 1 907\n"
    assert read_offsets(disk.files, path) == known


def test_no_offsets_are_a_file_too(memory_files: MemoryFiles) -> None:
    write_offsets(memory_files, PATH, {})
    assert read_whole(memory_files, PATH) == b"0\n0\n"
    assert read_offsets(memory_files, PATH) == {}


@given(offsets)
def test_offsets_are_read_as_they_were_written(known: dict[TopicPartition, int]) -> None:
    files = MemoryFiles()
    write_offsets(files, "/checkpoint", known)
    assert read_offsets(files, "/checkpoint") == known


def test_the_four_checkpoints_have_kafka_s_names() -> None:
    assert OFFSET_CHECKPOINTS == (
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "log-start-offset-checkpoint",
        "cleaner-offset-checkpoint",
    )


def test_a_missing_and_an_empty_file_have_no_entries(memory_files: MemoryFiles) -> None:
    assert read_offsets(memory_files, PATH) == {}
    write_whole(memory_files, PATH, b"")
    assert read_offsets(memory_files, PATH) == {}


def test_space_between_words_may_be_any(memory_files: MemoryFiles) -> None:
    write_whole(memory_files, PATH, b"0\n2\norders\t0   5\n  orders 1 6 \n")
    assert read_offsets(memory_files, PATH) == {TopicPartition("orders", 0): 5, TopicPartition("orders", 1): 6}


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (b"1\n0\n", 1, "version is '1'"),
        (b"-1\n0\n", 1, "version"),
        (b"orders 0 5\n", 1, "version"),
        (b"\n", 1, "version is ''"),
        (b"0\n", 2, "number of entries is missing"),
        (b"0\nmany\n", 2, "number of entries is missing"),
        (b"0\n-1\n", 2, "number of entries is missing"),
        (b"0\n" + b"9" * 5000 + b"\n", 2, "not a number"),
        (b"0\n2\norders 0 5\n", 2, "2 entries are announced, but 1 follow"),
        (b"0\n1\norders 0 5\norders 1 5\n", 2, "1 entries are announced, but 2 follow"),
        (b"0\n2\norders 0 5\n\n", 4, "3 words"),
        (b"0\n1\norders 0\n", 3, "has 2"),
        (b"0\n2\norders 0 5\norders 1 5 9\n", 4, "has 4"),
        (b"0\n1\norders zero 5\n", 3, "'zero' is not a number"),
        (b"0\n1\norders 0 five\n", 3, "'five' is not a number"),
        (b"0\n1\norders 0 -1\n", 3, "-1 is not an offset"),
        (b"0\n1\norders 0 9223372036854775808\n", 3, "is not an offset"),
        (b"0\n1\norders 0 " + b"9" * 5000 + b"\n", 3, "is not a number"),
        (b"0\n1\norders 0 5", 3, "cut off"),
        (b"\xff\xfe\x00", 1, "not text"),
        (bytes(100), 1, "cut off"),
    ],
)
def test_damage_has_path_and_line(memory_files: MemoryFiles, text: bytes, line: int, words: str) -> None:
    error = damaged(memory_files, text)
    assert error.line == line
    assert words in error.reason


def test_what_lies_before_the_damage_can_be_had(memory_files: MemoryFiles) -> None:
    write_whole(memory_files, PATH, b"0\n2\norders 0 5\norders 1 bad\n")
    found = []
    with pytest.raises(CheckpointError):
        for entry in iterate_offsets(memory_files, PATH):
            found.append(entry)
    assert found == [(TopicPartition("orders", 0), 5)]


@given(st.binary(max_size=60), st.integers(0, 40))
def test_no_bytes_break_a_checkpoint(noise: bytes, place: int) -> None:
    files = MemoryFiles()
    good = b"0\n2\norders 0 4821\norders 1 907\n"
    write_whole(files, "/checkpoint", good[:place] + noise + good[place:])
    for read in (read_offsets, read_epochs, read_partition_metadata, read_properties):
        try:
            read(files, "/checkpoint")
        except CheckpointError as error:
            assert error.path == "/checkpoint"


def test_a_crash_leaves_the_old_checkpoint_or_the_new_one() -> None:
    old, new = {TopicPartition("orders", 0): 1}, {TopicPartition("orders", 0): 2, TopicPartition("orders", 1): 3}
    stop_at_step = 1
    while True:
        files = MemoryFiles()
        write_offsets(files, "/checkpoint", old)
        files.stop_at_step = files.steps + stop_at_step
        try:
            write_offsets(files, "/checkpoint", new)
        except DiskStoppedError:
            for keep in KEEPS:
                assert read_offsets(files.crash(keep), "/checkpoint") in (old, new)
            stop_at_step += 1
            continue
        assert read_offsets(files.crash(SYNCED_ONLY), "/checkpoint") == new
        break
    assert stop_at_step > 3


# Leader epochs.


def test_epochs_are_read_in_their_order(memory_files: MemoryFiles) -> None:
    write_epochs(memory_files, PATH, [(0, 0), (3, 120)])
    assert read_whole(memory_files, PATH) == b"0\n2\n0 0\n3 120\n"
    assert read_epochs(memory_files, PATH) == [(0, 0), (3, 120)]


# Topic ids.


def test_a_topic_id_has_kafka_s_22_characters() -> None:
    assert encode_topic_id(KAFKA_TOPIC_ID) == KAFKA_TOPIC_ID_TEXT
    assert decode_topic_id(KAFKA_TOPIC_ID_TEXT) == KAFKA_TOPIC_ID


def test_a_topic_id_uses_the_letters_that_are_safe_in_names() -> None:
    topic_id = UUID(bytes=b"\xfb\xff" * 8)
    assert encode_topic_id(topic_id) == "-__7__v_-__7__v_-__7_w"
    assert decode_topic_id("-__7__v_-__7__v_-__7_w") == topic_id


@given(st.uuids())
def test_a_topic_id_is_read_as_it_was_written(topic_id: UUID) -> None:
    text = encode_topic_id(topic_id)
    assert len(text) == 22
    assert decode_topic_id(text) == topic_id


@pytest.mark.parametrize("text", ["", "abc", KAFKA_TOPIC_ID_TEXT[:-1], KAFKA_TOPIC_ID_TEXT + "A", "ä" * 22, "=" * 22])
def test_what_is_no_topic_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a topic id"):
        decode_topic_id(text)


# partition.metadata.


def test_partition_metadata_ends_without_a_newline(memory_files: MemoryFiles) -> None:
    write_partition_metadata(memory_files, PATH, KAFKA_TOPIC_ID)
    assert read_whole(memory_files, PATH) == b"version: 0\ntopic_id: " + KAFKA_TOPIC_ID_TEXT.encode()
    assert read_partition_metadata(memory_files, PATH) == KAFKA_TOPIC_ID


def test_partition_metadata_that_is_missing_or_ends_with_a_newline_is_no_damage(memory_files: MemoryFiles) -> None:
    assert read_partition_metadata(memory_files, PATH) is None
    write_whole(memory_files, PATH, f"version: 0\ntopic_id: {KAFKA_TOPIC_ID_TEXT}\n".encode())
    assert read_partition_metadata(memory_files, PATH) == KAFKA_TOPIC_ID


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f"version: 1\ntopic_id: {KAFKA_TOPIC_ID_TEXT}", 1),
        ("version: 0", 1),
        (f"topic_id: {KAFKA_TOPIC_ID_TEXT}", 1),
        (f"version: 0\ntopic: {KAFKA_TOPIC_ID_TEXT}", 1),
        (f"version: 0\ntopic_id: {KAFKA_TOPIC_ID_TEXT}\nmore: 1", 1),
        ("version: 0\ntopic_id", 1),
        ("version: 0\ntopic_id: short", 2),
        ("version: 0\ntopic_id: " + "A" * 22, 2),
    ],
)
def test_damaged_partition_metadata_has_path_and_line(memory_files: MemoryFiles, text: str, line: int) -> None:
    write_whole(memory_files, PATH, text.encode())
    with pytest.raises(CheckpointError) as caught:
        read_partition_metadata(memory_files, PATH)
    assert (caught.value.path, caught.value.line) == (PATH, line)


# meta.properties.


def test_properties_of_a_kafka_are_read(memory_files: MemoryFiles) -> None:
    text = "#\n#Tue Sep 02 10:00:00 UTC 2025\n! note\n\ncluster.id=abc=\ndirectory.id = x\nnode.id=1\nversion=1\n"
    write_whole(memory_files, PATH, text.encode())
    assert read_properties(memory_files, PATH) == {
        "cluster.id": "abc=",
        "directory.id": "x",
        "node.id": "1",
        "version": "1",
    }


def test_properties_are_read_as_they_were_written(memory_files: MemoryFiles) -> None:
    assert read_properties(memory_files, PATH) == {}
    properties = {"version": "1", "node.id": "3", "cluster.id": "MkU3OEVBNTcwNTJENDM2Qk"}
    write_properties(memory_files, PATH, properties)
    assert read_properties(memory_files, PATH) == properties
    assert read_whole(memory_files, PATH).startswith(b"#")


def test_a_line_that_is_no_property_has_a_number(memory_files: MemoryFiles) -> None:
    write_whole(memory_files, PATH, b"#\nversion=1\nnode.id\n")
    with pytest.raises(CheckpointError, match=r"line 3: 'node\.id' is not of the form") as caught:
        read_properties(memory_files, PATH)
    assert caught.value.line == 3


# The clean-shutdown marker.


def test_the_clean_shutdown_marker_is_that_of_kafka(memory_files: MemoryFiles) -> None:
    write_clean_shutdown_marker(memory_files, "/data")
    content = read_whole(memory_files.crash(SYNCED_ONLY), f"/data/{CLEAN_SHUTDOWN_MARKER}")
    assert json.loads(content) == {"version": 0, "brokerEpoch": -1}
    assert CLEAN_SHUTDOWN_MARKER == ".kafka_cleanshutdown"


def test_a_file_that_is_too_large_is_damaged(tmp_path: Path) -> None:
    path = str(tmp_path / "checkpoint")
    OsFiles().open(path, writable=True).truncate(SMALL_FILE_BYTES_MAX + 1)
    for read in (read_offsets, read_epochs, read_properties, read_partition_metadata):
        with pytest.raises(CheckpointError, match=f"line 1: the file has {SMALL_FILE_BYTES_MAX + 1} bytes"):
            read(OsFiles(), path)
