"""The analysis: every check over one history, and a summary of what was done and found."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from checker.checks import groups, records, transactions
from checker.history import Fault, Operation, Poll, Transaction, Trouble
from checker.model import Finding, Model

Check = Callable[[Model], Iterator[Finding]]


def trouble(model: Model) -> Iterator[Finding]:
    """What processes saw that may never happen, whatever the broker goes through."""
    for operation, seen in model.of(Trouble):
        yield Finding(kind="trouble", sentence=f"{operation.process}: {seen.what}")


CHECKS: tuple[Check, ...] = (
    records.lost_writes,
    records.duplicates,
    records.unsent,
    records.inconsistent_offsets,
    records.send_order,
    records.poll_order_and_skips,
    records.unseen,
    transactions.aborted_reads,
    transactions.early_reads,
    transactions.partial_transactions,
    transactions.hanging_transactions,
    transactions.exactly_once,
    groups.lost_commits,
    groups.group_skips,
    trouble,
)


def analyse(operations: Sequence[Operation]) -> list[Finding]:
    """Everything that is wrong with a history; nothing, of a broker that keeps its word."""
    model = Model(operations)
    return [finding for check in CHECKS for finding in check(model)]


def operation_counts(operations: Sequence[Operation]) -> dict[str, str]:
    """How many operations of each kind there were, and how they ended."""
    outcomes: dict[str, Counter[str]] = {}
    sizes: Counter[str] = Counter()
    for operation in operations:
        if isinstance(operation.body, Fault | Trouble):
            continue
        kind = type(operation.body).__name__
        outcomes.setdefault(kind, Counter())[operation.outcome] += 1
        if isinstance(operation.body, Poll | Transaction):
            sizes[kind] += len(operation.body.records)
    return {
        kind: ", ".join(f"{count:,} {outcome}" for outcome, count in counts.most_common())
        + (f" ({sizes[kind]:,} records)" if kind in sizes else "")
        for kind, counts in outcomes.items()
    }


def fault_counts(operations: Sequence[Operation]) -> Counter[str]:
    """What was done to the broker, and how often."""
    faults = (operation.body for operation in operations)
    return Counter(fault.action.split(",")[0] for fault in faults if isinstance(fault, Fault))
