"""The wall clock is set forward and back under a broker that rolls, retains and compacts by it.

What is promised: what is not deleted by age is all there, whatever the clock does. By age a segment goes when its
newest record is older than `retention.ms` by the clock as it is then; one whose records are from the future is told of
in one line, and its age counts from when it was written or noticed. Offsets stay dense, time-outs do not care, and
indexes fit.
"""

import logging
from pathlib import Path
from typing import Any

import pytest

from barnabas.cli.main import main
from barnabas.clock import ManualClock, SystemClock
from barnabas.embedded import Broker
from barnabas.wire.errors import ErrorCode
from tests.broker.asking import connected, create_topic, fetch, offsets_of, produce
from tests.broker.turning import on_loop, until
from tests.storage.builders import batch_of

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
YEARS_MS = 3650 * DAY_MS
RETENTION_MS = 2 * HOUR_MS
KEPT, AGED, COMPACTED = "kept", "aged", "compacted"
SETTINGS = {"log.initial.task.delay.ms": 0, "log.retention.check.interval.ms": 1_000, "log.cleaner.backoff.ms": 1_000}
SMALL = {"segment.bytes": 500, "segment.ms": HOUR_MS}
TOPICS: dict[str, dict[str, object]] = {
    KEPT: {**SMALL, "retention.ms": -1},
    AGED: {**SMALL, "retention.ms": RETENTION_MS, "file.delete.delay.ms": 0},
    COMPACTED: {**SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.01},
}
COUNT = 12


def write(connection: Any, clock: ManualClock, start: int) -> None:
    """Append a few records to each topic, as of now, at the offsets that come next."""
    for name in TOPICS:
        for number in range(COUNT):
            answer = produce(connection, name, batch_of(1, timestamp=clock.now_ms(), size=60))
            assert answer.error_code == ErrorCode.NONE, (name, number, answer)
            assert answer.base_offset == start + number


def start_of(connection: Any, topic: str) -> int:
    start: int = fetch(connection, topic, 2 * COUNT).log_start_offset
    return start


def offsets_from(connection: Any, topic: str, start: int, end: int) -> list[int]:
    found: list[int] = []
    while start < end:
        offsets = offsets_of(fetch(connection, topic, start))
        assert offsets, f"{topic} has nothing at {start}"
        found += offsets
        start = found[-1] + 1
    return found


def look_after_logs(broker: Broker, clock: ManualClock) -> None:
    """Let everything run that is done on schedule, some times."""
    for _ in range(5):
        clock.advance(1_000)
        on_loop(broker, lambda: None)


def start_after_upkeep(broker: Broker, clock: ManualClock, connection: Any) -> int:
    look_after_logs(broker, clock)
    return start_of(connection, AGED)


@pytest.mark.parametrize("jump_ms", [DAY_MS, YEARS_MS, -DAY_MS, -YEARS_MS])
def test_a_clock_that_jumps_takes_nothing_that_is_not_old(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, jump_ms: int
) -> None:
    caplog.set_level(logging.INFO, "barnabas")
    clock, data = ManualClock(SystemClock().now_ms()), tmp_path / "data"
    with Broker(in_process=True, data=data, settings=SETTINGS, clock=clock) as broker, connected(broker) as connection:
        for name, settings in TOPICS.items():
            create_topic(connection, name, config=settings)
        write(connection, clock, 0)
        clock.jump_to(clock.now_ms() + jump_ms)
        write(connection, clock, COUNT)
        look_after_logs(broker, clock)
        if jump_ms > 0:
            # What was written before is old now, by the clock; but never what was written since.
            until(lambda: start_after_upkeep(broker, clock, connection) > 0)
        assert start_of(connection, AGED) <= (COUNT if jump_ms > 0 else 0)
    # And back, or forth, to where it was, over a restart.
    clock.jump_to(clock.now_ms() - jump_ms)
    with Broker(in_process=True, data=data, settings=SETTINGS, clock=clock) as broker, connected(broker) as connection:
        write(connection, clock, 2 * COUNT)
        look_after_logs(broker, clock)
        aged_start = start_of(connection, AGED)
        # The last jump forward makes what was written in the past old.
        assert aged_start <= (COUNT if jump_ms > 0 else 2 * COUNT)
        assert offsets_from(connection, KEPT, 0, 3 * COUNT) == list(range(3 * COUNT))
        assert offsets_from(connection, AGED, aged_start, 3 * COUNT) == list(range(aged_start, 3 * COUNT))
        compacted = offsets_from(connection, COMPACTED, 0, 3 * COUNT)
        assert compacted[-1] == 3 * COUNT - 1
        assert compacted == sorted(compacted)
        assert produce(connection, KEPT, batch_of(1, timestamp=clock.now_ms())).base_offset == 3 * COUNT
    said = [record.getMessage() for record in caplog.records]
    if jump_ms > 0:
        assert any("segments with" in line and "are deleted (" in line and AGED in line for line in said), said
    assert any("which is after now; the age of the segment counts" in line for line in said), said
    assert "Traceback" not in caplog.text
    assert main(["verify", str(data)]) == 0
