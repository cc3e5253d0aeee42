"""A group at work: members that consume in threads, and a producer that feeds their topic meanwhile."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import TracebackType

from tests.compat.apart import Apart
from tests.compat.model import DEADLINE_S, Driver, Member, MemberOptions, NewRecord, ProducerOptions, Record
from tests.compat.scenarios.scenario import Context, numbers_of, wait_for_leaders

# Between two rounds of records, so that the group is busy for as long as a scenario takes, and no more.
PACE_S = 0.01


class Worker:
    """A member that polls, and commits what it got, until it is told to stop."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._finish = threading.Event()
        self._pool = ThreadPoolExecutor(1)
        self._is_open = True
        self.records: list[Record] = []
        self.owned: frozenset[int] = frozenset()
        self.rebalances = 0
        self._polling = self._pool.submit(self._poll)

    def _poll(self) -> None:
        while not self._finish.is_set():
            polled = self._member.poll(commit=True)
            self.records += polled.records
            self.owned, self.rebalances = polled.assignment, polled.rebalances

    def check(self) -> None:
        """Raises what ended it, if it ended by itself."""
        if self._polling.done():
            self._polling.result()

    def pause(self) -> None:
        """Polls no more, but stays in the group."""
        self._finish.set()
        self._polling.result(2 * DEADLINE_S)

    def stop(self) -> None:
        """Leaves the group; a static member only goes away."""
        if self._is_open:
            self._is_open = False
            try:
                self.pause()
            finally:
                self._pool.shutdown()
                self._member.__exit__(None, None, None)

    def crash(self, apart: Apart) -> None:
        """Is gone without a word. What it consumed before is known, because it is killed between two polls."""
        self.pause()
        self._is_open = False
        self._pool.shutdown()
        apart.kill()


class Crew:
    """The workers of one group, and the records that they are fed: each has a number of its own."""

    def __init__(self, context: Context, partitions: int, options: MemberOptions) -> None:
        self._driver = context.driver
        self._options = options
        self.workers: list[Worker] = []
        self._fed = 0
        self.partitions = partitions
        with ExitStack() as opened:
            self._producer = opened.enter_context(context.driver.producer(ProducerOptions(idempotent=True)))
            self._opened = opened.pop_all()

    def __enter__(self) -> "Crew":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for worker in self.workers:
            worker.stop()
        self._opened.close()

    def join(self, instance_id: str | None = None, *, where: Driver | Apart | None = None) -> Worker:
        """One more worker."""
        member = (where or self._driver).member(replace(self._options, instance_id=instance_id))
        self.workers.append(Worker(member))
        return self.workers[-1]

    def feed(self, rounds: int = 1) -> None:
        """Sends a record to every partition, this many times."""
        for _ in range(rounds):
            records = [
                NewRecord(value=b"%d" % (self._fed + partition), partition=partition)
                for partition in range(self.partitions)
            ]
            self._producer.send(self._options.topic, records)
            self._fed += self.partitions

    def add_partitions(self, total: int) -> None:
        self._driver.create_partitions(self._options.topic, total)
        wait_for_leaders(self._driver, self._options.topic, total)
        self.partitions = total

    @contextmanager
    def feeding(self) -> Iterator[None]:
        """Feeds in a thread while the block runs."""
        finish = threading.Event()

        def run() -> None:
            while not finish.wait(PACE_S):
                self.feed()

        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(run)
            try:
                yield
            finally:
                finish.set()
            running.result(DEADLINE_S)

    def until(self, condition: Callable[[], bool], what: Callable[[], str]) -> None:
        """Waits for a condition as long as the workers are well."""
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            for worker in self.workers:
                worker.check()
            if time.monotonic() > deadline:
                raise TimeoutError(what())
            time.sleep(0.01)

    def settle(self, *workers: Worker) -> None:
        """Waits until these workers, and no others, own all partitions, each by one, and every worker has some."""

        def settled() -> bool:
            owned = sorted(partition for worker in workers for partition in worker.owned)
            return owned == list(range(self.partitions)) and all(worker.owned for worker in workers)

        self.until(settled, lambda: f"the partitions are owned so: {[sorted(worker.owned) for worker in workers]}")

    def consumed(self) -> list[int]:
        """Every number that a worker got, in order."""
        return sorted(number for worker in self.workers for number in numbers_of(worker.records))

    def finish_exactly_once(self) -> None:
        """Every record was consumed by one worker, once."""
        self.wait_for_all()
        for worker in self.workers:
            worker.stop()
        assert self.consumed() == list(range(self._fed))

    def wait_for_all(self) -> None:
        """Every record is consumed at least once."""
        fed = set(range(self._fed))
        self.until(
            lambda: fed <= set(self.consumed()), lambda: f"not consumed: {sorted(fed - set(self.consumed()))[:20]}"
        )


def new_crew(context: Context, partitions: int, options: MemberOptions) -> Crew:
    """A group with a topic of its own; the options' names are filled in."""
    topic = context.topic_name()
    context.driver.create_topic(topic, partitions, {})
    wait_for_leaders(context.driver, topic, partitions)
    return Crew(context, partitions, replace(options, topic=topic, group=f"{topic}-group"))
