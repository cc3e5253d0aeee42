"""`barnabas produce TOPIC`: writes lines of stdin as records, plain, with keys, or as JSON objects.

Input of any length goes through: it is read in pieces, and what waits to be acknowledged is bounded. When the input
pauses, what came so far is written, so that `tail -f` can stand in front.
"""

import argparse
import os
import select
import sys
from collections.abc import Callable, Iterator
from typing import TextIO

from barnabas.cli.connecting import add_bootstrap_server, complain, not_negative, positive, with_client
from barnabas.cli.record_json import BadRecordError, InputRecord, parse_record
from barnabas.client.client import Client
from barnabas.client.metadata import UnknownPartitionError
from barnabas.client.producer import Producer, ProducerOptions
from barnabas.client.sender import ACKS_ALL, ACKS_LEADER, ACKS_NONE, SendOptions
from barnabas.clock import Clock, SystemClock
from barnabas.records.codecs import Codec, codec_by_name
from barnabas.records.record import Header

DESCRIPTION = """\
Write every line of stdin to a topic: as a value, as key and value with --key-separator, or with --json as an object
  {"key": "k", "value": "v", "headers": {"name": "v"}, "partition": 0, "timestamp": 1700000000000}
of which only "value" is needed. Text is UTF-8, null is null, and {"base64": "AP8="} stands for any bytes. Headers may
also be a list of pairs. What `barnabas consume --format json` prints can be read.
A line that can not be read ends the command; what came before it is written. A topic that does not exist is created
where the broker's auto.create.topics.enable allows it."""
EXAMPLES = """\
examples:
  barnabas produce greetings < lines.txt                          every line a value
  barnabas produce orders --key-separator : < orders.txt          key:value, one a line
  barnabas produce orders --json --compression zstd < orders.json
  barnabas consume orders --format json | barnabas produce copy --json    if copy has as many partitions
"""

ACKS = {"all": ACKS_ALL, "1": ACKS_LEADER, "0": ACKS_NONE}
CODECS = [codec.name.lower() for codec in Codec]
CHUNK_BYTES = 64 * 1024
LINE_BYTES_MAX = 64 * 1024 * 1024
REDRAW_SECONDS = 0.1
# A person waits at the other end.
DELIVERY_TIMEOUT_MS = 60_000


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.description = DESCRIPTION
    parser.epilog = EXAMPLES
    parser.add_argument("topic", metavar="TOPIC")
    add_bootstrap_server(parser)
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--key-separator", metavar="TEXT", help="each line is a key, this text, and a value")
    shape.add_argument("--json", action="store_true", help="each line is a JSON object, as shown above")
    parser.add_argument("--null", metavar="TEXT", help="a key or value that is exactly this text is null")
    parser.add_argument(
        "--header",
        action="append",
        default=[],
        type=_header,
        metavar="NAME=VALUE",
        help="a header of every record; may be repeated",
    )
    parser.add_argument("--partition", type=not_negative, metavar="N", help="write everything to this partition")
    parser.add_argument(
        "--acks", choices=ACKS, default="all", help="who must have a batch: all in-sync replicas, the leader, nobody"
    )
    parser.add_argument("--compression", choices=CODECS, default="none", metavar="CODEC", help=", ".join(CODECS))
    parser.add_argument(
        "--batch-size", type=positive, metavar="BYTES", default=64 * 1024, help="of a full batch (default: %(default)s)"
    )


def _header(text: str) -> Header:
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"a header is NAME=VALUE, but {text!r} was given")
    return os.fsencode(name), os.fsencode(value)


def run(arguments: argparse.Namespace) -> int:
    """Write every line, and say how many there were."""
    return with_client("produce", arguments, lambda client: _produce(client, arguments))


def _produce(client: Client, arguments: argparse.Namespace) -> int:
    options = ProducerOptions(
        batch_size=arguments.batch_size,
        codec=codec_by_name(arguments.compression),
        allow_auto_topic_creation=True,
        sending=SendOptions(acks=ACKS[arguments.acks], delivery_timeout_ms=DELIVERY_TIMEOUT_MS),
    )
    if sys.stdin.isatty() and sys.stderr.isatty():
        print("One record a line; Ctrl-D ends.", file=sys.stderr)
    counter = _Counter(sys.stderr)
    producer = Producer(client, options)
    complaint: str | None = None
    is_ended = False
    try:
        complaint = _send_lines(producer, arguments, counter)
        producer.flush()
        is_ended = True
    finally:
        counter.finish()
        producer.close()
        # After an error that is raised, its own line says it all, unless something was written before.
        if is_ended or producer.records_acknowledged:
            _say_how_many(producer.records_acknowledged, arguments.topic)
    if complaint is not None:
        complain("produce", complaint)
        return 1
    return 0


def _say_how_many(written: int, topic: str) -> None:
    complain("produce", f"{written:,} record{'' if written == 1 else 's'} written to {topic}")


def _send_lines(producer: Producer, arguments: argparse.Namespace, counter: "_Counter") -> str | None:
    """Send every line, and return the sentence about one that can not be read."""
    read = _reader(arguments)
    topic, partition, headers = arguments.topic, arguments.partition, tuple(arguments.header)
    number = 0
    try:
        for line in input_lines(sys.stdin.fileno()):
            if line is None:
                producer.flush()
                continue
            number += 1
            record = read(line)
            producer.send(
                topic,
                record.value,
                key=record.key,
                headers=record.headers + headers,
                partition=record.partition if partition is None else partition,
                timestamp=record.timestamp,
            )
            counter.add(len(line))
    except BadRecordError as error:
        return f"line {number}: {error}"
    except LineTooLongError as error:
        return f"line {number + 1}: {error}"
    except UnknownPartitionError as error:
        if partition is not None:
            raise
        return f"line {number}: {error}"
    return None


def _reader(arguments: argparse.Namespace) -> Callable[[bytes], InputRecord]:
    """Return what makes a record of a line."""
    null = None if arguments.null is None else os.fsencode(arguments.null)
    separator = None if arguments.key_separator is None else os.fsencode(arguments.key_separator)

    def unless_null(data: bytes) -> bytes | None:
        return None if data == null else data

    def read_value(line: bytes) -> InputRecord:
        return InputRecord(unless_null(line))

    def read_pair(line: bytes) -> InputRecord:
        assert separator is not None
        key, found, value = line.partition(separator)
        if not found:
            raise BadRecordError(f"there is no {arguments.key_separator!r} between a key and a value")
        return InputRecord(unless_null(value), unless_null(key))

    if arguments.json:
        return parse_record
    return read_value if not separator else read_pair


class LineTooLongError(Exception):
    """A line has no end within the limit; it could fill the memory otherwise, and no broker takes such a record."""


def input_lines(descriptor: int, line_bytes_max: int = LINE_BYTES_MAX) -> Iterator[bytes | None]:
    """Yield lines, and None whenever something came and reading on would have to wait; raises LineTooLongError.

    A line ends with a line feed, or with a carriage return and one; the last may have none.
    """
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    rest = bytearray()
    is_new = False
    while True:
        if is_new and not poller.poll(0):
            yield None
            is_new = False
        chunk = os.read(descriptor, CHUNK_BYTES)
        if not chunk:
            break
        end = chunk.rfind(b"\n")
        rest += chunk if end < 0 else chunk[:end]
        if len(rest) > line_bytes_max + CHUNK_BYTES or (end < 0 and len(rest) > line_bytes_max):
            raise LineTooLongError(f"a line has at most {line_bytes_max:,} bytes")
        if end < 0:
            continue
        for line in bytes(rest).split(b"\n"):
            is_new = True
            yield line.removesuffix(b"\r")
        rest = bytearray(chunk[end + 1 :])
    if rest:
        yield bytes(rest).removesuffix(b"\r")


class _Counter:
    """A line on stderr that counts, for people who wait; silent when stderr is not a terminal."""

    def __init__(self, stream: TextIO, clock: Clock | None = None) -> None:
        self._stream = stream
        self._clock = SystemClock() if clock is None else clock
        self._is_shown = stream.isatty() and not sys.stdin.isatty()
        self._drawn = self._clock.monotonic_seconds()
        self._records = self._bytes = 0

    def add(self, size_bytes: int) -> None:
        self._records += 1
        self._bytes += size_bytes
        # Looking at the clock for every line would cost more than a line does.
        if self._is_shown and self._records % 1_000 == 0:
            now = self._clock.monotonic_seconds()
            if now - self._drawn >= REDRAW_SECONDS:
                self._drawn = now
                self._stream.write(f"\r\x1b[Kproduce  {self._records:,} records  {self._bytes / 1e6:,.0f} MB")
                self._stream.flush()

    def finish(self) -> None:
        if self._is_shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
