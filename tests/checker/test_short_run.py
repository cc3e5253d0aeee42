"""A short run of the checker against a broker that is killed, restarted and paused; and what it says of damaged runs.

BARNABAS_SEED repeats the choices of a run, BARNABAS_CHECKER_SECONDS makes it longer.
"""

import os
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from checker.__main__ import main, report
from checker.analysis import analyse, fault_counts
from checker.history import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Committed,
    FinalRead,
    Operation,
    Outcome,
    Seen,
    Send,
    Transaction,
)
from checker.run import run

SECONDS = float(os.environ.get("BARNABAS_CHECKER_SECONDS", "12"))

Records = Callable[[tuple[Seen, ...]], tuple[Seen, ...]]


def read_otherwise(operations: Sequence[Operation], change: Records, *isolations: str) -> list[Operation]:
    """The same history, with other records read at the end."""
    changed = []
    for operation in operations:
        body = operation.body
        if isinstance(body, FinalRead) and body.isolation in isolations:
            body = replace(body, records=change(body.records))
        changed.append(replace(operation, body=body))
    return changed


def without(value: str) -> Records:
    return lambda records: tuple(record for record in records if record.value != value)


def with_one_twice(records: tuple[Seen, ...]) -> tuple[Seen, ...]:
    return (*records, records[0]._replace(offset=records[-1].offset + 1)) if records else ()


def with_two_exchanged(records: tuple[Seen, ...]) -> tuple[Seen, ...]:
    if len(records) < 2:
        return records
    first, second = records[0], records[-1]
    return (first._replace(value=second.value), *records[1:-1], second._replace(value=first.value))


def group_gone_back(operations: Sequence[Operation]) -> list[Operation]:
    """The last time that somebody asked for offsets, they were gone."""
    changed = list(operations)
    for index in reversed(range(len(changed))):
        body = changed[index].body
        if isinstance(body, Committed) and max(body.offsets.values(), default=0) > 0:
            changed[index] = replace(changed[index], body=replace(body, offsets=dict.fromkeys(body.offsets, -1)))
            break
    return changed


def damaged(operations: Sequence[Operation]) -> dict[str, list[Operation]]:
    """Histories with damage, by what is to be found in each."""
    both = (READ_COMMITTED, READ_UNCOMMITTED)
    bodies = [operation.body for operation in operations if operation.outcome is Outcome.OK]
    sent = next(body.record.value for body in bodies if isinstance(body, Send))
    transactions = [body for body in bodies if isinstance(body, Transaction)]
    half = next(body.records[0].value for body in transactions if len(body.records) > 1)
    damages = {
        "lost-write": read_otherwise(operations, without(sent), *both),
        "duplicate": read_otherwise(operations, with_one_twice, *both),
        "inconsistent-offset": read_otherwise(operations, with_two_exchanged, *both),
        "partial-transaction": read_otherwise(operations, without(half), READ_COMMITTED),
        "lost-commit": group_gone_back(operations),
    }
    outputs = [body.records[0].value for body in transactions if body.group]
    if outputs:
        damages["exactly-once"] = read_otherwise(operations, without(outputs[0]), *both)
    return damages


def test_a_short_run_finds_nothing_and_would_find_damage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seed = int(os.environ.get("BARNABAS_SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"to do it again: BARNABAS_SEED={seed}")
    result = run(seed, SECONDS, tmp_path)
    said = report(result.operations, result.findings)
    assert not result.findings, f"BARNABAS_SEED={seed}\n{said}"
    assert fault_counts(result.operations), said
    sends = [operation for operation in result.operations if isinstance(operation.body, Send)]
    assert sum(operation.outcome is Outcome.OK for operation in sends) > 100, said

    for kind, operations in damaged(result.operations).items():
        assert kind in {finding.kind for finding in analyse(operations)}, kind

    assert main(["--history", str(result.history)]) == 0
    assert "findings     none" in capsys.readouterr().out
