"""Transactions: nobody reads as committed what is not, all of a transaction is there or nothing, and none hangs.

aborted-read         a record of a transaction that was not committed was read as committed
early-read           a record was read as committed before its commit was asked for
partial-transaction  some of a transaction is committed, and some is not
hanging-transaction  a partition whose last stable offset does not come to its end, though every transaction is over
exactly-once         an input of the transforming loop has no output, or two, or one that was not consumed
"""

from collections import defaultdict
from collections.abc import Iterator

from checker.history import READ_COMMITTED, READ_UNCOMMITTED, Committed, Outcome, Seen, Transaction, transformed_from
from checker.model import Finding, Model


def aborted_reads(model: Model) -> Iterator[Finding]:
    """Read as committed: in a poll at any time, or at the end."""
    readers: dict[Seen, str] = {}
    for operation, poll in model.polls():
        if poll.isolation == READ_COMMITTED:
            for record in poll.records:
                readers.setdefault(record, operation.process)
    for partition in model.partitions:
        for offset, value in model.view(READ_COMMITTED, partition).values.items():
            readers.setdefault(Seen(partition, offset, value), "the final read")
    for record, reader in readers.items():
        sent = model.sent.get(record.value)
        if sent is not None and sent.is_transactional and sent.outcome is Outcome.FAIL:
            sentence = f"{reader} read {sent} at {record.partition} {record.offset} as committed"
            yield Finding(kind="aborted-read", sentence=sentence)


def early_reads(model: Model) -> Iterator[Finding]:
    """A poll that was over before a commit was asked for can not have what is committed by it."""
    for operation, poll in model.polls():
        if poll.isolation != READ_COMMITTED:
            continue
        for record in poll.records:
            sent = model.sent.get(record.value)
            if sent is None or not isinstance(sent.operation.body, Transaction):
                continue
            asked_at = sent.operation.body.asked_to_commit_at
            if asked_at is not None and operation.completed < asked_at:
                when = f"{asked_at - operation.completed:.3f} s before its commit was asked for"
                sentence = f"{operation.process} read {sent} at {record.partition} {record.offset} {when}"
                yield Finding(kind="early-read", sentence=sentence)


def partial_transactions(model: Model) -> Iterator[Finding]:
    """All or nothing, also where nobody was told which."""
    for operation, transaction in model.of(Transaction):
        committed = [record for record in transaction.records if model.is_committed(model.sent[record.value])]
        if committed and len(committed) < len(transaction.records):
            missing = [record for record in transaction.records if record not in committed]
            who = f"the transaction of {operation.process} (operation {operation.number}, {operation.outcome})"
            counts = f"{len(committed)} of {len(transaction.records)} records"
            yield Finding(
                kind="partial-transaction", sentence=f"{who} has {counts} committed; not, for example, {missing[0]}"
            )


def hanging_transactions(model: Model) -> Iterator[Finding]:
    """When everything is over, every transaction is decided."""
    for read in model.final_reads:
        if read.isolation == READ_UNCOMMITTED and read.last_stable_offset < read.high_watermark:
            sentence = f"{read.partition} ends at {read.high_watermark}, but is stable up to {read.last_stable_offset}"
            yield Finding(kind="hanging-transaction", sentence=sentence)


def exactly_once(model: Model) -> Iterator[Finding]:
    """The transforming loop has one output for every input that its group has consumed, and for no other."""
    groups = {transaction.group for _, transaction in model.of(Transaction) if transaction.group}
    consumed: dict[str, int] = {}
    for operation, found in model.of(Committed):
        if found.group in groups and operation.outcome is Outcome.OK:
            consumed.update(found.offsets)  # The last one counts: it was asked for when everything was over.
    outputs: dict[Seen, list[tuple[str, int]]] = defaultdict(list)
    for partition in model.partitions:
        for offset, value in model.view(READ_COMMITTED, partition).values.items():
            source = transformed_from(value)
            if source is not None:
                outputs[source].append((partition, offset))
    for source, places in outputs.items():
        if len(places) > 1:
            yield Finding(kind="exactly-once", sentence=f"{source} has {len(places)} outputs: {places}")
        if model.view(READ_COMMITTED, source.partition).values.get(source.offset) != source.value:
            sentence = f"{places[0]} is made of {source}, which is not committed there"
            yield Finding(kind="exactly-once", sentence=sentence)
        elif source.offset >= consumed.get(source.partition, 0):
            sentence = f"{places[0]} is made of {source}, but only {consumed.get(source.partition)} is consumed"
            yield Finding(kind="exactly-once", sentence=sentence)
    for partition, end_offset in consumed.items():
        view = model.view(READ_COMMITTED, partition)
        for offset in view.between(0, end_offset):
            if Seen(partition, offset, view.values[offset]) not in outputs:
                sentence = f"{partition} {offset} ({view.values[offset]}) is consumed (up to {end_offset})"
                yield Finding(kind="exactly-once", sentence=f"{sentence}, and has no output")
