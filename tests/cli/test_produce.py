"""`barnabas produce`: lines and JSON to records, in any amount, and what happens to a bad line."""

import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas.cli.main import main
from barnabas.cli.produce import LineTooLongError, input_lines
from barnabas.client.admin import NewTopic, create_topics
from barnabas.client.client import Client
from barnabas.records.record import Record
from tests.cli.test_main import BARNABAS
from tests.client.brokers import topic_name
from tests.client.test_fetcher import read_all

Produce = Callable[..., tuple[int, str]]


@pytest.fixture
def topic(bootstrap_servers: str) -> str:
    """A topic of one partition."""
    name = topic_name("produce")
    with Client(bootstrap_servers) as client:
        assert create_topics(client, [NewTopic(name=name, partitions=1)]) == {}
    return name


@pytest.fixture
def produce(
    bootstrap_servers: str,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Produce:
    """Runs `barnabas produce` with this input, and gives exit code and stderr."""

    def run(data: bytes, *words: str, to: str = topic) -> tuple[int, str]:
        (tmp_path / "input").write_bytes(data)
        with open(tmp_path / "input", encoding="utf-8") as stream:
            monkeypatch.setattr("sys.stdin", stream)
            exit_code = main(["produce", to, "--bootstrap-server", bootstrap_servers, *words])
        said = capsys.readouterr()
        assert said.out == ""
        return exit_code, said.err

    return run


def written(bootstrap_servers: str, topic: str) -> list[Record]:
    with Client(bootstrap_servers) as client:
        return [record for records in read_all(client, topic).values() for record in records]


def test_every_line_is_a_value(produce: Produce, bootstrap_servers: str, topic: str) -> None:
    exit_code, said = produce(b"one\r\n\ntwo \xff\nlast")
    assert (exit_code, said) == (0, f"barnabas produce: 4 records written to {topic}\n")
    assert [(r.key, r.value) for r in written(bootstrap_servers, topic)] == [
        (None, b"one"),
        (None, b""),
        (None, b"two \xff"),
        (None, b"last"),
    ]


def test_no_line_is_no_record(produce: Produce, topic: str) -> None:
    assert produce(b"") == (0, f"barnabas produce: 0 records written to {topic}\n")
    assert produce(b"x") == (0, f"barnabas produce: 1 record written to {topic}\n")


def test_keys_nulls_and_headers(produce: Produce, bootstrap_servers: str, topic: str) -> None:
    exit_code, _ = produce(
        b"a::1\nb::x::y\n::c\nd::-\n-::e\n", "--key-separator", "::", "--null", "-", "--header", "h=1", "--header", "i="
    )
    assert exit_code == 0
    found = written(bootstrap_servers, topic)
    assert [(r.key, r.value) for r in found] == [
        (b"a", b"1"),
        (b"b", b"x::y"),
        (b"", b"c"),
        (b"d", None),
        (None, b"e"),
    ]
    assert {record.headers for record in found} == {((b"h", b"1"), (b"i", b""))}


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", ["all", "1"])
def test_json_with_every_codec(
    produce: Produce, bootstrap_servers: str, topic: str, compression: str, acks: str
) -> None:
    line = b'{"key": "k", "value": {"base64": "AP8="}, "headers": {"h": "v"}, "timestamp": 1700000000000}\n'
    assert produce(line * 3, "--json", "--compression", compression, "--acks", acks, "--batch-size", "50")[0] == 0
    assert written(bootstrap_servers, topic) == [
        Record(offset, 1_700_000_000_000, b"k", b"\x00\xff", ((b"h", b"v"),)) for offset in range(3)
    ]


def test_a_partition_is_chosen_by_the_line_or_by_the_option(produce: Produce, bootstrap_servers: str) -> None:
    name = topic_name("partitions")
    with Client(bootstrap_servers) as client:
        assert create_topics(client, [NewTopic(name=name, partitions=3)]) == {}
        assert produce(b'{"value": "v", "partition": 2}', "--json", to=name)[0] == 0
        assert produce(b'{"value": "v", "partition": 2}\nv', "--partition", "1", to=name)[0] == 0
        counts = {partition: len(records) for partition, records in read_all(client, name).items()}
        assert counts == {0: 0, 1: 2, 2: 1}
        exit_code, said = produce(b"v", "--partition", "3", to=name)
    assert (exit_code, said) == (1, f"barnabas produce: topic '{name}' has partitions 0 to 2, but no 3\n")


@pytest.mark.parametrize(
    ("data", "words", "complaint"),
    [
        (b"a=1\nb=2\nc3\nd=4\n", ["--key-separator", "="], "line 3: there is no '=' between a key and a value"),
        (b'{"value": "1"}\n{"value": "2"}\nthree\n', ["--json"], "line 3: this is not JSON: "),
    ],
)
def test_a_bad_line_is_named_and_what_came_before_is_written(
    produce: Produce, bootstrap_servers: str, topic: str, data: bytes, words: list[str], complaint: str
) -> None:
    exit_code, said = produce(data, *words)
    assert exit_code == 1
    assert said.startswith(f"barnabas produce: 2 records written to {topic}\nbarnabas produce: {complaint}")
    assert said.count("\n") == 2
    assert [record.value for record in written(bootstrap_servers, topic)] == [b"1", b"2"]


def test_a_line_that_asks_for_a_partition_that_is_not_there_is_named(produce: Produce, topic: str) -> None:
    exit_code, said = produce(b'{"value": "v"}\n{"value": "v", "partition": 1}\n', "--json")
    assert exit_code == 1
    assert said == (
        f"barnabas produce: 1 record written to {topic}\n"
        f"barnabas produce: line 2: topic '{topic}' has only partition 0, but no 1\n"
    )


def test_a_broker_that_is_not_there_is_one_line(produce: Produce) -> None:
    exit_code, said = produce(b"v", "--bootstrap-server", "127.0.0.1:1")
    assert exit_code == 1
    assert said == (
        "barnabas produce: no broker answers at 127.0.0.1:1: Connection refused (`barnabas serve` starts one)\n"
    )


def test_a_record_that_is_too_large_is_one_line(produce: Produce, topic: str) -> None:
    exit_code, said = produce(b"x" * 3_000_000)
    assert exit_code == 1
    assert said.count("\n") == 1
    assert said.startswith(f"barnabas produce: 1 record was not acknowledged by {topic}-0: MESSAGE_TOO_LARGE: ")


def test_a_topic_is_made_where_the_broker_does_that(produce: Produce, bootstrap_servers: str) -> None:
    name = topic_name("auto")
    assert produce(b"v", to=name)[0] == 0
    assert len(written(bootstrap_servers, name)) == 1


def test_much_goes_through(produce: Produce, bootstrap_servers: str, topic: str) -> None:
    lines = [b"%d %s" % (number, b"x" * (number % 300)) for number in range(50_000)]
    exit_code, said = produce(b"\n".join(lines), "--acks", "all")
    assert (exit_code, said) == (0, f"barnabas produce: 50,000 records written to {topic}\n")
    assert [record.value for record in written(bootstrap_servers, topic)] == lines


def test_what_came_is_written_when_the_input_pauses(bootstrap_servers: str, topic: str) -> None:
    command = [BARNABAS, "produce", topic, "--bootstrap-server", bootstrap_servers]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process,
        Client(bootstrap_servers) as client,
    ):
        assert process.stdin is not None
        assert process.stderr is not None
        for count in (1, 2, 3):
            process.stdin.write(b"line\n")
            process.stdin.flush()
            deadline = client.clock.monotonic_seconds() + 60
            while len(read_all(client, topic)[0]) < count:
                assert client.clock.monotonic_seconds() < deadline, "the line was not written"
                client.clock.sleep(0.02)
        process.stdin.close()
        assert process.wait(60) == 0
        assert process.stderr.read().decode() == f"barnabas produce: 3 records written to {topic}\n"


# The lines themselves.


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    read_end, write_end = os.pipe()
    yield read_end, write_end
    for descriptor in (read_end, write_end):
        try:
            os.close(descriptor)
        except OSError:
            pass  # The test has closed it.


def test_a_pause_is_told_once_and_only_after_something_came(pipe: tuple[int, int]) -> None:
    read_end, write_end = pipe
    os.write(write_end, b"one\ntw")
    lines = input_lines(read_end)
    assert [next(lines), next(lines)] == [b"one", None]

    # While the next call waits, another thread writes the rest.
    def write_the_rest() -> None:
        os.write(write_end, b"o\nthree")
        os.close(write_end)

    writer = threading.Timer(0.05, write_the_rest)
    writer.start()
    assert [line for line in lines if line is not None] == [b"two", b"three"]
    writer.join()


def test_a_line_without_an_end_does_not_fill_the_memory(tmp_path: Path) -> None:
    (tmp_path / "long").write_bytes(b"short\n" + b"x" * 300_000)
    descriptor = os.open(tmp_path / "long", os.O_RDONLY)
    try:
        lines = input_lines(descriptor, line_bytes_max=100_000)
        assert next(lines) == b"short"
        with pytest.raises(LineTooLongError, match="at most 100,000 bytes"):
            list(lines)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["t", "--acks", "2"],
        ["t", "--compression", "rar"],
        ["t", "--json", "--key-separator", "x"],
        ["t", "--partition", "-1"],
        ["t", "--header", "h"],
        ["t", "--batch-size", "0"],
    ],
)
def test_bad_words_are_answered_with_the_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["produce", *words])
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("usage: barnabas produce")
