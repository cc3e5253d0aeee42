"""The clients of the long run: writers and readers of compacted and of retained topics, and who deletes and creates."""

import random
from collections import Counter
from dataclasses import dataclass, field

from barnabas.client.admin import NewTopic, create_topics, delete_topics
from barnabas.client.client import Client
from barnabas.client.connection import ClientError
from barnabas.client.options import ClientOptions
from barnabas.clock import SystemClock
from barnabas.records.codecs import Codec
from barnabas.wire.errors import ApiError, ErrorCode
from checker.care.asking import Fetched, Writer, delete_records, fetch, now_ms, start_offset
from checker.care.keyed_ledger import KeyedLedger, value_of
from checker.care.rolling_ledger import VALUE_BYTES_MAX, RollingLedger
from checker.workload.raw import AskingAgain, GaveUpError
from checker.workload.world import PATIENCE_S, World, partition_name

KEYS = 60
NUMBER_HEADER = b"number"
PAUSE_S = 0.01
BATCH_MAX = 10
SHARE_FROM_THE_START = 0.5
DELETE_PAUSE_S = (0.5, 3.0)
CHURN_PAUSE_S = (0.2, 1.5)
CODECS = (Codec.NONE, Codec.LZ4, Codec.ZSTD)


@dataclass(slots=True, kw_only=True)
class Care:
    """What the clients of one run share beside the world."""

    world: World
    keyed: dict[str, KeyedLedger]
    rolling: dict[str, RollingLedger]
    tombstone_s: float
    """How long a tombstone stays at least."""
    counts: Counter[str] = field(default_factory=Counter)

    def pause(self, chance: random.Random, most: float) -> bool:
        """Wait a moment; tells whether to go on."""
        return not self.world.stopping.wait(chance.uniform(0, most))


def run_keyed_writer(care: Care, name: str) -> None:
    """Give new values to keys of its own, in every partition."""
    chance = care.world.chance(name)
    writer = Writer(care.world, name, chance.choice(CODECS))
    while care.pause(chance, 2 * PAUSE_S):
        ledger = chance.choice(list(care.keyed.values()))
        keys = [f"{name}-{ledger.name}-{chance.randrange(KEYS)}" for _ in range(chance.randint(1, BATCH_MAX))]
        numbered = [(key, ledger.intends(key)) for key in keys]
        records = [
            (now_ms(), key.encode(), value_of(key, number), [(NUMBER_HEADER, b"%d" % number)])
            for key, number in numbered
        ]
        base_offset = writer.send(ledger.name, records)
        for delta, (key, number) in enumerate(numbered):
            ledger.acknowledged(key, number, base_offset + delta)
        care.counts["keyed records"] += len(records)
    writer.close()


def run_keyed_reader(care: Care, name: str) -> None:
    """Read compacted partitions, from their start or from somewhere in the middle, to their end."""
    chance = care.world.chance(name)
    asking = AskingAgain(care.world, name)
    while care.pause(chance, 20 * PAUSE_S):
        ledger = chance.choice(list(care.keyed.values()))
        end = ledger.end_offset
        read_keys(care, name, asking, ledger, 0 if chance.random() < SHARE_FROM_THE_START else chance.randint(0, end))
    asking.close()


def read_keys(care: Care, name: str, asking: AskingAgain, ledger: KeyedLedger, start: int) -> None:
    """Read a compacted partition once, from an offset to its end."""
    began = care.world.history.now()
    one = ledger.begin_pass(name, start)
    position, end = start, one.end_offset
    while position < end:
        found = fetch(asking, ledger.name, position)
        if found.error is not ErrorCode.NONE or found.high_watermark < one.end_offset:
            ledger.complain("unreadable", name, f"{_answer(found)} at offset {position} of {one.end_offset}")
            return
        if found.next_offset == position:
            break  # What lay there was cleaned away.
        # What replaces a record that is cleaned away lies before the end of that moment, so it is read up to there.
        end = found.high_watermark
        for record in found.records:
            assert record.key is not None
            value = None if record.value is None else bytes(record.value)
            one.takes(record.offset, bytes(record.key).decode(), int(bytes(record.headers[0][1] or b"0")), value)
        position = found.next_offset
        care.counts["keyed records read"] += len(found.records)
    one.ends(is_slow=care.world.history.now() - began > care.tombstone_s)
    care.counts["passes"] += 1
    care.counts["passes over cleaned records"] += one.is_over_cleaned


def _answer(found: Fetched) -> str:
    return f"the answer is {found.error.name} with {len(found.records)} records, high watermark {found.high_watermark}"


def run_rolling_writer(care: Care, name: str) -> None:
    """Write to the topics whose old records are deleted."""
    chance = care.world.chance(name)
    writer = Writer(care.world, name, Codec.NONE)
    while care.pause(chance, 2 * PAUSE_S):
        ledger = chance.choice(list(care.rolling.values()))
        created = now_ms()
        sizes = [chance.randint(10, VALUE_BYTES_MAX) for _ in range(chance.randint(1, BATCH_MAX))]
        base_offset = writer.send(ledger.name, [(created, None, b"." * size, ()) for size in sizes])
        for delta, size in enumerate(sizes):
            ledger.acknowledged(base_offset + delta, size, created)
        care.counts["rolling records"] += len(sizes)
    writer.close()


def run_rolling_reader(care: Care, name: str) -> None:
    """Read on from where it is, and from the start of the log when that has passed by."""
    chance = care.world.chance(name)
    asking = AskingAgain(care.world, name)
    positions = dict.fromkeys(care.rolling, 0)
    while care.pause(chance, 10 * PAUSE_S):
        ledger = chance.choice(list(care.rolling.values()))
        if chance.random() < 0.1:
            positions[ledger.name] = ledger.start_offset
        positions[ledger.name] = read_on(care, name, asking, ledger, positions[ledger.name])
    asking.close()


def read_on(care: Care, name: str, asking: AskingAgain, ledger: RollingLedger, position: int) -> int:
    """Read what is there from a position on, and return where to go on."""
    deleted, acknowledged = ledger.deleted, ledger.end_offset
    found = fetch(asking, ledger.name, position)
    if found.error is ErrorCode.OFFSET_OUT_OF_RANGE:
        start = start_offset(asking, ledger.name)
        if start <= position:
            care.world.trouble(name, f"{ledger.name} starts at {start}, and has no offset {position}")
        return start  # Whether that may be is judged with the next answer, which tells start and end together.
    if found.error is not ErrorCode.NONE:
        care.world.trouble(name, f"{ledger.name} at {position}: {_answer(found)}")
        return position
    is_moved = ledger.told_start(name, found.log_start_offset, deleted, found.high_watermark, now_ms())
    care.counts["starts moved by retention"] += is_moved
    if found.high_watermark < acknowledged:
        care.world.trouble(name, f"{ledger.name} ends at {found.high_watermark}, but {acknowledged} was acknowledged")
    offsets = [record.offset for record in found.records]
    ledger.takes(name, position, found.log_start_offset, offsets)
    if not offsets and position < found.high_watermark:
        care.world.trouble(name, f"{ledger.name} has nothing at {position}, and ends at {found.high_watermark}")
    care.counts["rolling records read"] += len(offsets)
    return position + len(offsets)


def run_remover(care: Care, name: str) -> None:
    """Delete records by request, now here and now there."""
    chance = care.world.chance(name)
    asking = AskingAgain(care.world, name)
    while not care.world.stopping.wait(chance.uniform(*DELETE_PAUSE_S)):
        ledger = chance.choice(list(care.rolling.values()))
        # Little at a time, so that something is left for retention.
        offset = ledger.start_offset + chance.randint(0, (ledger.end_offset - ledger.start_offset) // 10)
        ledger.asks_to_delete(offset)
        answer = delete_records(asking, ledger.name, offset)
        # The log may have lost more by itself, and then has no such offset any more.
        if answer.error_code == ErrorCode.NONE:
            ledger.deleted_up_to(offset)
            if answer.low_watermark < offset:
                care.world.trouble(name, f"{ledger.name} starts at {answer.low_watermark} after {offset} was deleted")
            care.counts["DeleteRecords"] += 1
        elif answer.error_code != ErrorCode.OFFSET_OUT_OF_RANGE:
            care.world.trouble(name, f"DeleteRecords of {ledger.name}: {ErrorCode(answer.error_code).name}")
    asking.close()


def run_churner(care: Care, name: str) -> None:
    """Create topics, write to them, read that, and delete them; a name that is used again starts from nothing."""
    chance = care.world.chance(name)
    patient = ClientOptions(
        retry_backoff_ms=20, retry_backoff_max_ms=200, default_api_timeout_ms=int(PATIENCE_S * 1000)
    )
    asking = AskingAgain(care.world, name)
    with Client(care.world.bootstrap_servers, patient) as client:
        while not care.world.stopping.wait(chance.uniform(*CHURN_PAUSE_S)):
            topic = f"fleeting-{chance.randrange(4)}"
            try:
                if _create(care, name, client, topic, chance.randint(1, 3)):
                    _write_and_read(care, name, asking, topic, chance)
                _delete(care, name, client, topic)
            except ClientError:
                continue  # The broker is away. Whatever came of it, the next turn of this name finds out.
            except ApiError as error:
                care.world.trouble(name, f"{topic} can not be created or deleted: {error}")
            care.counts["topics"] += 1
    asking.close()


def _create(care: Care, name: str, client: Client, topic: str, partitions: int) -> bool:
    """Create a topic; tells whether it was made now. What was left by an answer that was lost is not counted on."""
    settings = {"segment.bytes": "20000", "file.delete.delay.ms": "200"}
    failures = create_topics(client, [NewTopic(name=topic, partitions=partitions, configs=settings)])
    for failure in failures.values():
        if failure.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            care.world.trouble(name, f"{topic} can not be created: {failure}")
    return not failures


def _write_and_read(care: Care, name: str, asking: AskingAgain, topic: str, chance: random.Random) -> None:
    writer = Writer(care.world, f"{name}-{topic}")
    partition, count = partition_name(topic, 0), chance.randint(1, 50)
    base_offset = writer.send(partition, [(now_ms(), None, b"%d" % number, ()) for number in range(count)])
    writer.close()
    found = [bytes(record.value or b"") for record in fetch(asking, partition, 0).records]
    if base_offset != 0 or found != [b"%d" % number for number in range(count)]:
        what = f"{topic} is new, but its first record is at {base_offset}, and {len(found)} of {count} were read"
        care.world.trouble(name, what)


def _delete(care: Care, name: str, client: Client, topic: str) -> None:
    for failure in delete_topics(client, [topic]).values():
        # Whoever asks again because the answer was lost is told that it is gone.
        if failure.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            care.world.trouble(name, f"{topic} can not be deleted: {failure}")


def check_everything(care: Care) -> None:
    """Read all of it once more, when nobody writes."""
    asking = AskingAgain(care.world, "final")
    deadline = SystemClock().monotonic_seconds() + PATIENCE_S
    try:
        for keyed in care.keyed.values():
            read_keys(care, "final", asking, keyed, 0)
        for rolling in care.rolling.values():
            position = start_offset(asking, rolling.name)
            while position < rolling.end_offset and SystemClock().monotonic_seconds() < deadline:
                position = read_on(care, "final", asking, rolling, position)
            if position < rolling.end_offset:
                care.world.trouble("final", f"{rolling.name} was read up to {position} of {rolling.end_offset} only")
    except GaveUpError:
        pass  # It is written down.
    asking.close()
