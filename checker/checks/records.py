"""Records: what was acknowledged is there, once, at one place, and is read in order and without gaps.

lost-write           acknowledged or read, and not there in the end
duplicate            one value at two places; every producer is idempotent
unsent               a value that nobody sent, or whose sending failed for certain
inconsistent-offset  one offset with two values
send-order           a producer's records of one partition lie in another order than it sent them
poll-order           a consumer went back without being told to
poll-skip            a consumer went over records that it should have been given
unseen               a consumer that reads at the end never gets there
"""

from collections import defaultdict
from collections.abc import Iterator

from checker.history import READ_COMMITTED, READ_UNCOMMITTED, UNKNOWN_OFFSET, Assigned, Outcome, Poll, Seen
from checker.model import Finding, Model, Sent, View

EXAMPLES = 5


def lost_writes(model: Model) -> Iterator[Finding]:
    """Acknowledged, and not found; read, and not found again."""
    for sent in model.sent.values():
        if sent.outcome is Outcome.OK and not model.is_committed(sent):
            yield Finding(kind="lost-write", sentence=f"{sent.partition} has no {sent} at the end (told {sent.offset})")
        elif sent.offset != UNKNOWN_OFFSET and (sent.partition, sent.offset) not in model.places.get(sent.value, ()):
            yield Finding(
                kind="lost-write",
                sentence=f"{sent} was acknowledged at {sent.partition} {sent.offset}, and is not there",
            )
    gone: dict[tuple[str, Seen], str] = {}
    for operation, poll in model.polls():
        for record in poll.records:
            if record.offset not in model.view(poll.isolation, record.partition).values:
                gone.setdefault((poll.isolation, record), operation.process)
    for (isolation, record), process in gone.items():
        what = f"{process} read {record.value} at {record.partition} {record.offset} ({isolation})"
        yield Finding(kind="lost-write", sentence=f"{what}, and it can not be read at the end")


def duplicates(model: Model) -> Iterator[Finding]:
    """One value at two places."""
    for value, places in model.places.items():
        if len(places) > 1:
            yield Finding(kind="duplicate", sentence=f"{value} is there {len(places)} times: {sorted(places)}")


def unsent(model: Model) -> Iterator[Finding]:
    """Values that can not be there."""
    for value, places in model.places.items():
        sent = model.sent.get(value)
        if sent is None:
            yield Finding(kind="unsent", sentence=f"{value} at {places} was sent by nobody")
        elif {partition for partition, _ in places} != {sent.partition}:
            yield Finding(kind="unsent", sentence=f"{sent} was sent to {sent.partition}, and is at {places}")
        elif sent.outcome is Outcome.FAIL and not sent.is_transactional:
            yield Finding(kind="unsent", sentence=f"the sending of {sent} failed, and it is at {places}")


def inconsistent_offsets(model: Model) -> Iterator[Finding]:
    """One offset, two values: among acknowledgements, polls and final reads."""
    told: dict[tuple[str, int], dict[str, str]] = defaultdict(dict)
    for sent in model.sent.values():
        if sent.offset != UNKNOWN_OFFSET:
            told[sent.partition, sent.offset].setdefault(sent.value, f"told {sent.operation.process}")
    for operation, poll in model.polls():
        for record in poll.records:
            told[record.partition, record.offset].setdefault(record.value, f"read by {operation.process}")
    for read in model.final_reads:
        for record in read.records:
            told[record.partition, record.offset].setdefault(record.value, "read at the end")
    for (partition, offset), values in told.items():
        if len(values) > 1:
            shown = ", ".join(f"{value} ({who})" for value, who in values.items())
            yield Finding(kind="inconsistent-offset", sentence=f"{partition} {offset} has {shown}")


def send_order(model: Model) -> Iterator[Finding]:
    """A producer's records of a partition lie in the order in which it sent them."""
    last: dict[tuple[str, str], tuple[Sent, int]] = {}
    for sent in model.sent.values():
        for partition, offset in model.places.get(sent.value, ())[:1]:
            key = sent.operation.process, partition
            before, before_offset = last.get(key, (sent, -1))
            if offset < before_offset:
                sentence = f"{partition}: {sent} lies at {offset}, before {before} at {before_offset}"
                yield Finding(kind="send-order", sentence=sentence)
            last[key] = sent, offset


def poll_order_and_skips(model: Model) -> Iterator[Finding]:
    """Consumers are given everything that they may see, from where they are on, in order."""
    positions: dict[tuple[str, str], int] = {}
    for operation in model.operations:
        match operation.body:
            case Assigned(positions=assigned):
                positions.update({(operation.process, partition): at for partition, at in assigned.items()})
            case Poll(isolation=isolation, records=records):
                for record in records:
                    key = operation.process, record.partition
                    view = model.view(isolation, record.partition)
                    yield from _step(f"{operation.process} ({isolation})", view, positions.get(key, -1), record)
                    positions[key] = record.offset + 1


def _step(who: str, view: View, position: int, record: Seen) -> Iterator[Finding]:
    if position == UNKNOWN_OFFSET:
        return
    if record.offset < position:
        sentence = f"{who} was at {record.partition} {position}, and was given {record.offset}"
        yield Finding(kind="poll-order", sentence=sentence)
    skipped = view.between(position, record.offset)
    if skipped:
        shown = ", ".join(f"{offset} {view.values[offset]}" for offset in skipped[:EXAMPLES])
        sentence = f"{who} was at {record.partition} {position}, and was given {record.offset}, not {shown}"
        yield Finding(kind="poll-skip", sentence=f"{sentence} ({len(skipped)} records)")


def unseen(model: Model) -> Iterator[Finding]:
    """Whoever reads at the end gets to the end, and sees at each level what it has to see."""
    for read in model.final_reads:
        if read.position < read.high_watermark:
            where = f"{read.partition} ends at {read.high_watermark} (last stable offset {read.last_stable_offset})"
            yield Finding(kind="unseen", sentence=f"{where}, but {read.isolation} came to {read.position} only")
    for partition in model.partitions:
        everything = model.view(READ_UNCOMMITTED, partition)
        committed = model.view(READ_COMMITTED, partition)
        for offset, value in everything.values.items():
            sent = model.sent.get(value)
            # Of a transaction, and of what was acknowledged, others tell.
            is_hidden = sent is not None and not sent.is_transactional and sent.outcome is Outcome.UNKNOWN
            if is_hidden and offset not in committed.values:
                yield Finding(
                    kind="unseen", sentence=f"{partition} {offset} ({sent}) is in no transaction, but not committed"
                )
        for offset in committed.offsets:
            if offset not in everything.values:
                sentence = f"{partition} {offset} ({committed.values[offset]}) is read as committed only"
                yield Finding(kind="unseen", sentence=sentence)
