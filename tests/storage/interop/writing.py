"""The logs that Kafka is asked to read: every codec, kind of producer, timestamp and format, in many small segments."""

from collections.abc import Sequence

from barnabas.config import LogConfig
from barnabas.records.builder import NewRecord
from barnabas.records.codecs import Codec
from barnabas.records.record import Header
from tests.records.message_sets import build_message_set
from tests.storage.interop.written import NOW_MS, SEQUENCES, Producer, WrittenDirectory, WrittenLog

# A few batches a segment and an index entry for most of them, so that every part of the indexes is looked at.
SMALL_SEGMENTS = LogConfig(segment_bytes=6_000, index_interval_bytes=300)
BATCHES = 40

HEADERS: tuple[Header, ...] = ((b"trace", b"\x00\xff"), (b"trace", b"again"), (b"empty", b""), (b"null", None))


def varied_records(number: int) -> list[NewRecord]:
    """Each part of a record is absent once, and the timestamps go back and forth."""
    timestamp = NOW_MS + number * 100
    text = b"all work and no play " * 10
    return [
        (timestamp, b"key", text, ()),
        (timestamp + 5, None, text, HEADERS),
        (timestamp + 2, b"key", None, ()),
        (timestamp + 7, None, None, ((b"h" * 200, b"w" * 200),)),
        (timestamp + 7, b"", b"", ()),
        (timestamp + 3, "ключ".encode(), b"%d" % number, (("clé".encode(), "é".encode()),)),
    ]


def labelled(label: str, count: int) -> list[NewRecord]:
    """Records that say what they are."""
    return [(NOW_MS + number, b"%d" % number, f"{label} {number}".encode(), ()) for number in range(count)]


def write_everything(directory: WrittenDirectory) -> None:
    """Fill a directory with one log of every kind."""
    for codec in Codec:
        log = directory.create(f"ours-{codec.name.lower()}", SMALL_SEGMENTS)
        for number in range(BATCHES):
            log.append(varied_records(number), codec=codec)
    _write_append_time(directory)
    _write_idempotent(directory.create("ours-idempotent", SMALL_SEGMENTS))
    _write_transactions(directory.create("ours-transactions", SMALL_SEGMENTS))
    _write_open_transaction(directory.create("ours-open", SMALL_SEGMENTS))
    _write_epochs(directory.create("ours-epochs", SMALL_SEGMENTS))
    _write_old_formats(directory.create("ours-old-formats", SMALL_SEGMENTS))
    directory.create("ours-empty", SMALL_SEGMENTS)


def _write_append_time(directory: WrittenDirectory) -> None:
    config = LogConfig(segment_bytes=6_000, index_interval_bytes=300, message_timestamp_type="LogAppendTime")
    log = directory.create("ours-append-time", config)
    for number in range(BATCHES):
        log.append(varied_records(number), codec=Codec(number % len(Codec)))


def _write_idempotent(log: WrittenLog) -> None:
    first = Producer(1_000)
    # The sequence numbers of this one go on at 0 in the middle of a batch.
    second = Producer(1_001, next_sequence=SEQUENCES - 8)
    for number in range(BATCHES):
        log.append(varied_records(number), producer=first if number % 2 else second, codec=Codec(number % len(Codec)))
        if number == BATCHES // 2:
            first.begin_epoch()
    log.append(labelled("plain", 2))


def _write_transactions(log: WrittenLog) -> None:
    first, second, third = Producer(2_000), Producer(2_001), Producer(2_002, epoch=4)

    def send(producer: Producer, records: Sequence[NewRecord], codec: Codec = Codec.NONE) -> None:
        log.append(records, producer=producer, codec=codec, transactional=True)

    for round_number in range(6):
        send(first, labelled(f"round {round_number}, first", 3))
        log.end(first, commit=True)
        # The one that begins first ends last, and is aborted over several segments.
        send(first, labelled(f"round {round_number}, first, aborted late", 3), Codec.LZ4)
        send(second, varied_records(round_number), Codec.ZSTD)
        log.append(labelled(f"round {round_number}, plain", 2))
        log.end(second, commit=True)
        send(third, labelled(f"round {round_number}, third, aborted", 40))
        send(second, labelled(f"round {round_number}, second, aborted", 30))
        log.end(third, commit=False)
        send(first, labelled(f"round {round_number}, first, aborted late, second batch", 40))
        log.end(second, commit=False)
        log.end(first, commit=False)
        # A marker for a producer without a transaction, as a coordinator may repeat one.
        log.end(third, commit=True)
    first.begin_epoch()
    send(first, labelled("a new epoch", 1))
    log.end(first, commit=True)
    # An epoch that has only a marker: the coordinator ends the transaction of a producer that it replaces.
    send(third, labelled("fenced", 2))
    third.begin_epoch()
    log.end(third, commit=False)


def _write_open_transaction(log: WrittenLog) -> None:
    done, left_open = Producer(3_000), Producer(3_001)
    log.append(labelled("done", 3), producer=done, transactional=True)
    log.append(labelled("left open", 3), producer=left_open, transactional=True)
    log.end(done, commit=True)
    for number in range(BATCHES):
        log.append(varied_records(number))
    log.append(labelled("aborted behind it", 3), producer=done, transactional=True)
    log.end(done, commit=False)


def _write_epochs(log: WrittenLog) -> None:
    for epoch in (0, 1, 2, 5, 9):
        log.leader_epoch = epoch
        for number in range(10):
            log.append(varied_records(number))


def _write_old_formats(log: WrittenLog) -> None:
    for magic in (0, 1):
        for codec in (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4):
            for number in range(4):
                # Magic 0 has no timestamps, and neither has headers.
                records: list[NewRecord] = [
                    (timestamp if magic else -1, key, value, ()) for timestamp, key, value, _ in varied_records(number)
                ]
                messages = [(offset, *record[:3]) for offset, record in enumerate(records)]
                log.append_message_set(build_message_set(magic, messages, codec=codec), records, codec)
