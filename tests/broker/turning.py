"""What tests do to a broker on a thread: run something on its loop, wait for a condition, make a clock turn."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from barnabas.clock import SystemClock
from barnabas.embedded import Broker

WAIT_SECONDS = 60.0

Result = TypeVar("Result")


def on_loop(broker: Broker, function: Callable[[], Result]) -> Result:
    """Run a function on the broker's loop, and return what it returned."""
    results: list[Result] = []
    errors: list[BaseException] = []
    done = threading.Event()

    def run() -> None:
        try:
            results.append(function())
        except BaseException as error:  # noqa: BLE001 (it is raised again, on the test's thread)
            errors.append(error)
        finally:
            done.set()

    broker.server.services.scheduler.loop.call_soon_threadsafe(run)
    assert done.wait(WAIT_SECONDS)
    if errors:
        raise errors[0]
    return results[0]


def until(condition: Callable[[], Any]) -> None:
    """Wait for something that happens on another thread or in another process; fail when it does not."""
    clock = SystemClock()
    deadline = clock.monotonic_seconds() + WAIT_SECONDS
    while not condition():
        assert clock.monotonic_seconds() < deadline, "it did not happen"
        clock.sleep(0.002)


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that ended and was not waited for does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False  # It was gone before, or went between opening the file and reading it.
    return state != "Z"


def command_of(pid: int) -> bytes:
    """What a process was started with; nothing of one that is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def until_on_loop(broker: Broker, condition: Callable[[], Any]) -> None:
    """Wait for something that is to be looked at on the broker's loop."""
    until(lambda: on_loop(broker, condition))


def append(broker: Broker, topic: str, batch: bytes | bytearray, partition: int = 0, *, is_client: bool = True) -> int:
    """Append to a partition without a request, and return the offset that the batch got."""
    manager = broker.server.services.replica_manager

    def run() -> int:
        found = manager.partitions[topic, partition]
        info = found.append_records_to_leader(memoryview(bytearray(batch)), -1, is_client=is_client)
        manager.on_change(found)
        return info.first_offset

    return on_loop(broker, run)
