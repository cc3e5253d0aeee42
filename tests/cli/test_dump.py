"""`barnabas dump`: every kind of file, as text and as JSON, sound and damaged."""

import json
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.cli.dump import as_text
from barnabas.cli.main import main
from barnabas.records.batch import ATTRIBUTES_POSITION, restamp_crc
from barnabas.records.builder import build_batch
from barnabas.records.codecs import Codec
from tests.cli.conftest import LAST_SEGMENT, SEGMENT
from tests.records.message_sets import build_message_set
from tests.storage.interop.written import NOW_MS


def dump_json(capsys: pytest.CaptureFixture[str], *words: str | Path) -> list[dict[str, Any]]:
    """The rows of sound files, without the names of the files."""
    assert main(["dump", "--json", *map(str, words)]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    rows = [json.loads(line) for line in captured.out.splitlines()]
    return [{name: value for name, value in row.items() if name != "file"} for row in rows]


def dump_damaged(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[list[str], str]:
    """The lines before the damage, without the file's name, and the complaint."""
    assert main(["dump", *map(str, words)]) == 1
    captured = capsys.readouterr()
    [complaint] = captured.err.splitlines()
    return captured.out.splitlines()[1:], complaint


def test_batches_of_a_log(orders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = dump_json(capsys, orders / f"{SEGMENT}.log")
    assert [(row["base_offset"], row["last_offset"], row["position"]) for row in rows] == [
        (0, 4, 0),
        (5, 9, 176),
        (10, 14, 352),
    ]
    first = rows[0]
    assert first["count"] == 5
    assert first["size"] == 176
    assert first["magic"] == 2
    assert first["codec"] == "none"
    assert first["timestamp_type"] == "CreateTime"
    assert first["max_timestamp"] == NOW_MS + 4
    assert first["leader_epoch"] == 0
    assert first["transactional"] is False
    assert "producer_id" not in first


def test_batches_of_a_log_as_text(orders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = orders / f"{SEGMENT}.log"
    assert main(["dump", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == str(path)
    assert lines[1].startswith("  position 0  base_offset 0  last_offset 4  count 5  size 176  magic 2  codec none")
    assert f"max_timestamp {NOW_MS + 4} (2023-11-14T22:13:20.004Z)" in lines[1]
    # What is false or absent is left out.
    assert "transactional" not in lines[1]
    assert "producer" not in lines[1]
    assert len(lines) == 4


def test_records_of_a_log(orders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = dump_json(capsys, "--records", orders / f"{SEGMENT}.log")
    assert len(rows) == 3 * 6
    assert rows[1] == {
        "offset": 0,
        "timestamp": NOW_MS,
        "key": "key 0",
        "value": "value 0",
        "headers": [{"key": "h", "value_base64": "/w=="}],
    }


def test_records_of_a_log_as_text(orders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dump", "--records", str(orders / f"{SEGMENT}.log")]) == 0
    lines = capsys.readouterr().out.splitlines()
    time = f"timestamp {NOW_MS} (2023-11-14T22:13:20.000Z)"
    assert lines[2] == f'    offset 0  {time}  key "key 0"  value "value 0"  headers {{"h": base64 /w==}}'


def test_transactions_and_markers(payments: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = dump_json(capsys, "--records", payments / f"{SEGMENT}.log")
    assert rows[0]["producer_id"] == 7
    assert (rows[0]["base_sequence"], rows[0]["last_sequence"]) == (0, 2)
    assert rows[0]["transactional"] is True
    assert rows[1]["value"] is None
    marker = rows[5]
    assert (marker["offset"], marker["marker"], marker["coordinator_epoch"]) == (3, "ABORT", 3)
    assert main(["dump", "--records", str(payments / f"{SEGMENT}.log")]) == 0
    text = capsys.readouterr().out
    assert 'key "k"  value null' in text
    assert "transactional  control" in text


def control_record(version: int, control_type: int, value: bytes) -> tuple[int, bytes, bytes, tuple[()]]:
    return NOW_MS, struct.pack(">hh", version, control_type), value, ()


def test_control_records_that_are_no_markers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """So begins Kafka's metadata log: the change of leader is of type 2; what comes after it is shown, too."""
    path = tmp_path / f"{SEGMENT}.log"
    leader_change = build_batch([control_record(0, 2, b"\0\0\0"), control_record(1, 77, b"")], control=True)
    path.write_bytes(leader_change + build_batch([(NOW_MS, None, b"after", ())], base_offset=2))
    [_, first, second, _, record] = dump_json(capsys, "--records", path)
    assert first == {"offset": 0, "timestamp": NOW_MS, "control_type": 2, "version": 0}
    assert second == {"offset": 1, "timestamp": NOW_MS, "control_type": 77, "version": 1}
    assert record["value"] == "after"
    assert main(["dump", "--records", str(path)]) == 0
    assert "(2023-11-14T22:13:20.000Z)  control_type 2  version 0\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (control_record(0, 1, b"\0"), "The value of a marker has at least 6 bytes"),
        (control_record(-1, 2, b"\0" * 6), "The version of a marker is 0 or later, but -1 was found"),
        ((NOW_MS, b"\0\0\0", b"\0" * 6, ()), "The key of a marker has at least 4 bytes"),
    ],
    ids=["short value", "version", "short key"],
)
def test_a_damaged_marker(tmp_path: Path, record: Any, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"{SEGMENT}.log"
    path.write_bytes(build_batch([record], control=True))
    before, complaint = dump_damaged(capsys, "--records", path)
    assert len(before) == 1
    assert complaint.startswith(f"barnabas dump: {path}, position 0: {words}")


@pytest.mark.parametrize("codec", Codec)
def test_every_codec(tmp_path: Path, codec: Codec, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"{SEGMENT}.log"
    path.write_bytes(build_batch([(NOW_MS, None, b"text " * 50, ())] * 2, codec=codec))
    [batch, first, _] = dump_json(capsys, "--records", path)
    assert batch["codec"] == codec.name.lower()
    assert first["value"] == "text " * 50


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats(tmp_path: Path, magic: int, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"{SEGMENT}.log"
    path.write_bytes(build_message_set(magic, [(0, NOW_MS, None, b"a"), (1, NOW_MS, b"k", None)], codec=Codec.GZIP))
    [batch, *records] = dump_json(capsys, "--records", path)
    assert (batch["magic"], batch["codec"], batch["last_offset"]) == (magic, "gzip", 1)
    assert "leader_epoch" not in batch
    assert [(record["offset"], record["key"], record["value"]) for record in records] == [
        (0, None, "a"),
        (1, "k", None),
    ]


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        (f"orders-0/{LAST_SEGMENT}.index", [{"offset": 54, "position": 176}, {"offset": 59, "position": 357}]),
        (
            f"orders-0/{LAST_SEGMENT}.timeindex",
            [{"timestamp": NOW_MS + 10_004, "offset": 54}, {"timestamp": NOW_MS + 11_004, "offset": 59}],
        ),
        (
            f"payments-0/{SEGMENT}.txnindex",
            [
                {"producer_id": 7, "first_offset": 0, "last_offset": 3, "last_stable_offset": 4},
                {"producer_id": 8, "first_offset": 4, "last_offset": 7, "last_stable_offset": 8},
            ],
        ),
        ("log-start-offset-checkpoint", [{"topic": "orders", "partition": 0, "offset": 3}]),
        ("cleaner-offset-checkpoint", [{"topic": "orders", "partition": 0, "offset": 15}]),
        (
            "recovery-point-offset-checkpoint",
            [{"topic": "orders", "partition": 0, "offset": 60}, {"topic": "payments", "partition": 0, "offset": 11}],
        ),
        (
            "replication-offset-checkpoint",
            [{"topic": "orders", "partition": 0, "offset": 60}, {"topic": "payments", "partition": 0, "offset": 11}],
        ),
        (
            "orders-0/leader-epoch-checkpoint",
            [{"leader_epoch": 0, "start_offset": 3}, {"leader_epoch": 1, "start_offset": 30}],
        ),
    ],
)
@pytest.mark.parametrize("suffix", ["", ".deleted", ".swap", ".cleaned"])
def test_small_files(
    data_dir: Path, name: str, rows: list[dict[str, Any]], suffix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = shutil.move(data_dir / name, f"{data_dir / name}{suffix}")
    assert dump_json(capsys, path) == rows
    assert main(["dump", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == [str(path), *map(as_text, rows)]


def test_a_producer_snapshot(payments: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [first, second] = dump_json(capsys, payments / "00000000000000000011.snapshot")
    assert first == {
        "producer_id": 7,
        "producer_epoch": 0,
        "first_sequence": 3,
        "last_sequence": 5,
        "last_offset": 10,
        "last_timestamp": NOW_MS,
        "coordinator_epoch": 3,
        "current_transaction_first_offset": 8,
    }
    assert (second["producer_id"], second["current_transaction_first_offset"]) == (8, -1)


def test_whose_a_folder_is(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = dump_json(capsys, data_dir / "meta.properties")
    assert {"name": "version", "value": "1"} in rows
    [row] = dump_json(capsys, data_dir / "orders-0" / "partition.metadata")
    assert len(row["topic_id"]) == 22


def test_many_files_each_under_its_name(orders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = sorted(orders.glob("*.index"))
    assert main(["dump", *map(str, files)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if not line.startswith(" ")] == list(map(str, files))
    assert main(["dump", "--json", *map(str, files)]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["file"] for row in rows] == [str(file) for file in files for _ in range(2)]


def test_a_file_without_entries_says_so(payments: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = payments / f"{SEGMENT}.index"
    assert main(["dump", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}\n  (nothing)\n"
    assert dump_json(capsys, path) == []


def test_the_zeros_that_kafka_allocates_are_not_entries(orders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = orders / f"{SEGMENT}.index"
    with open(path, "r+b") as file:
        file.truncate(10_485_760)
    assert len(dump_json(capsys, path)) == 2


def test_text_of_clients_stays_on_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither a line break nor an escape sequence of a record reaches the terminal."""
    path = tmp_path / f"{SEGMENT}.log"
    value = 'a "quoted" \\ line\nand\x1b[31m red\x7f, é'
    path.write_bytes(build_batch([(-1, b"\xff", value.encode(), ((b"h\n", None),))]))
    assert main(["dump", "--records", str(path)]) == 0
    line = capsys.readouterr().out.splitlines()[2]
    assert 'timestamp none  key_base64 /w==  value "a \\"quoted\\" \\\\ line\\nand\\x1b[31m red\\x7f, é"' in line
    assert line.endswith('headers {"h\\n": null}')
    assert dump_json(capsys, "--records", path)[1]["value"] == value


def test_a_time_after_the_year_9999_is_a_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"{SEGMENT}.timeindex"
    path.write_bytes(struct.pack(">qi", 2**63 - 1, 0))
    assert main(["dump", str(path)]) == 0
    assert capsys.readouterr().out.splitlines()[1] == f"  timestamp {2**63 - 1}  offset 0"


# Damage.


def test_a_log_with_a_wrong_checksum(orders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = orders / f"{SEGMENT}.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    before, complaint = dump_damaged(capsys, path)
    assert len(before) == 2
    assert complaint.startswith(f"barnabas dump: {path}, position 352: ")


def test_a_log_with_a_torn_end(orders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = orders / f"{SEGMENT}.log"
    path.write_bytes(path.read_bytes()[:-10])
    before, complaint = dump_damaged(capsys, path)
    assert len(before) == 2
    assert complaint.endswith("position 352: the batch has 176 bytes by its header, but the file ends after 166")


def test_a_record_that_is_bad_under_a_right_checksum(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    batch = build_batch([(NOW_MS, b"key", b"value", ())] * 3)
    batch[61] = 0x7E
    restamp_crc(batch, 0, len(batch))
    path = tmp_path / f"{SEGMENT}.log"
    path.write_bytes(batch)
    before, complaint = dump_damaged(capsys, "--records", path)
    assert len(before) == 1
    assert complaint.startswith(f"barnabas dump: {path}, position 61: ")


def test_a_codec_that_does_not_exist(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    batch = build_batch([(NOW_MS, b"key", b"value", ())])
    batch[ATTRIBUTES_POSITION + 1] |= 7
    restamp_crc(batch, 0, len(batch))
    path = tmp_path / f"{SEGMENT}.log"
    path.write_bytes(batch)
    before, complaint = dump_damaged(capsys, path)
    assert before == []
    assert complaint.startswith(f"barnabas dump: {path}, position 0: ")


@pytest.mark.parametrize(
    ("name", "size", "position", "shown"),
    [
        (f"orders-0/{LAST_SEGMENT}.index", 13, 8, 1),
        (f"orders-0/{LAST_SEGMENT}.timeindex", 13, 12, 1),
        (f"payments-0/{SEGMENT}.txnindex", 67, 34, 1),
    ],
)
def test_an_index_of_an_odd_length(
    data_dir: Path, name: str, size: int, position: int, shown: int, capsys: pytest.CaptureFixture[str]
) -> None:
    path = data_dir / name
    path.write_bytes(path.read_bytes()[:size])
    before, complaint = dump_damaged(capsys, path)
    assert len(before) == shown
    assert complaint.startswith(f"barnabas dump: {path}, position {position}: the file has {size} bytes")


def test_a_transaction_index_of_another_version(payments: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = payments / f"{SEGMENT}.txnindex"
    data = bytearray(path.read_bytes())
    data[35] = 9
    path.write_bytes(data)
    before, complaint = dump_damaged(capsys, path)
    assert len(before) == 1
    assert complaint.endswith("position 34: the entry has version 9, but only 0 is known")


def test_a_snapshot_with_a_wrong_checksum(payments: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = payments / "00000000000000000011.snapshot"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    before, complaint = dump_damaged(capsys, path)
    assert before == []
    assert complaint.startswith(f"barnabas dump: {path}, position 0: the checksum is ")


@pytest.mark.parametrize(
    ("name", "text", "line", "shown"),
    [
        ("recovery-point-offset-checkpoint", "1\n0\n", 1, 0),
        ("replication-offset-checkpoint", "0\nmany\n", 2, 0),
        ("log-start-offset-checkpoint", "0\n2\norders 0 3\n", 2, 0),
        ("cleaner-offset-checkpoint", "0\n2\norders 0 3\norders one 4\n", 4, 1),
        ("cleaner-offset-checkpoint", "0\n2\norders 0 3\norders 1 -4\n", 4, 1),
        ("orders-0/leader-epoch-checkpoint", "0\n2\n0 0\n1\n", 4, 1),
        ("orders-0/partition.metadata", "version: 0\ntopic_id: nonsense", 2, 0),
        ("orders-0/partition.metadata", "version: 1\ntopic_id: nonsense", 1, 0),
        ("meta.properties", "version=1\nnonsense\n", 2, 1),
    ],
)
def test_damaged_texts(
    data_dir: Path, name: str, text: str, line: int, shown: int, capsys: pytest.CaptureFixture[str]
) -> None:
    path = data_dir / name
    path.write_text(text, encoding="utf-8")
    before, complaint = dump_damaged(capsys, path)
    assert len(before) == shown
    assert complaint.startswith(f"barnabas dump: {path}, line {line}: ")


@pytest.mark.parametrize("name", ["meta.properties", "orders-0/partition.metadata", "replication-offset-checkpoint"])
def test_bytes_instead_of_text(data_dir: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    (data_dir / name).write_bytes(b"\xff\xfe\x00")
    _, complaint = dump_damaged(capsys, data_dir / name)
    assert complaint == f"barnabas dump: {data_dir / name}, line 1: the file is not text"


@pytest.mark.parametrize(
    "name", ["1.log", "1.index", "1.timeindex", "1.txnindex", "1.snapshot", "meta.properties", "partition.metadata"]
)
def test_a_missing_file(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, complaint = dump_damaged(capsys, tmp_path / name)
    assert complaint == f"barnabas dump: {tmp_path / name}: No such file or directory"


def test_a_file_of_an_unknown_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("x")
    _, complaint = dump_damaged(capsys, tmp_path / "notes.txt")
    assert complaint.startswith(f"barnabas dump: {tmp_path / 'notes.txt'}: the name does not say what is in the file")
    assert ".timeindex" in complaint


def test_a_folder(orders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, complaint = dump_damaged(capsys, orders)
    assert complaint == (
        f"barnabas dump: {orders}: this is a folder; name the files in it, or check it with `barnabas verify`"
    )


def test_files_after_a_bad_one_are_shown_too(orders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dump", str(orders / "nothing.log"), str(orders / "leader-epoch-checkpoint")]) == 1
    assert "leader_epoch 1  start_offset 30" in capsys.readouterr().out


@given(data=st.data())
@settings(max_examples=200)
def test_no_damage_is_answered_with_a_traceback(
    sound_directory: Path, tmp_path_factory: Any, data: st.DataObject
) -> None:
    files = sorted(path for path in sound_directory.rglob("*") if path.is_file() and not path.name.startswith("."))
    source = data.draw(st.sampled_from(files))
    content = bytearray(source.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        if content:
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    content = content[: data.draw(st.integers(0, len(content)))] if data.draw(st.booleans()) else content
    if source.suffix == ".log" and len(content) > 61 and data.draw(st.booleans()):
        size = 12 + int.from_bytes(content[8:12], "big", signed=True)
        if 61 < size <= len(content):
            restamp_crc(content, 0, size)
    folder = tmp_path_factory.mktemp("damaged")
    (folder / source.name).write_bytes(content)
    assert main(["dump", "--records", str(folder / source.name)]) in (0, 1)
    assert main(["dump", "--json", "--records", str(folder / source.name)]) in (0, 1)


@pytest.mark.parametrize(
    "name", ["00000000000000000000.index", "00000000000000000000.txnindex", "7.snapshot", "meta.properties"]
)
def test_a_file_of_absurd_size_is_not_read(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / name
    with open(path, "wb") as file:
        file.truncate(3 << 30)
    assert main(["dump", str(path)]) == 1
    assert "3221225472 bytes" in capsys.readouterr().err
