"""LogRecovery: takes logs into service that are recovered while the broker runs, and tells how far that has come.

Rule 1: a log is served from the turn of the loop on in which it is taken over, and until then clients are told to come
again.
Rule 2: producer ids are not handed out for the first time before every log is there: one of them may remember a
producer of another broker, or of lost metadata, by an id that is larger than all known ones.
"""

import asyncio
import logging
from collections.abc import Callable

from barnabas.broker.replica_manager import ReplicaManager
from barnabas.broker.scheduler import Scheduler
from barnabas.cluster.controller import Controller
from barnabas.storage.log_loading import bytes_text
from barnabas.storage.log_manager import LogManager

logger = logging.getLogger(__name__)

PROGRESS_INTERVAL_MS = 5_000


class LogRecovery:
    """The logs of one broker that are still being recovered."""

    def __init__(
        self,
        logs: LogManager,
        replica_manager: ReplicaManager,
        controller: Controller,
        scheduler: Scheduler,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._logs = logs
        self._replica_manager = replica_manager
        self._controller = controller
        self._scheduler = scheduler
        self._loop = loop
        self._is_asked = False
        self._is_closed = False

    def start(self) -> None:
        """Take over what is ready from now on."""
        self._know_producers()
        if self._logs.loading.all():
            self._logs.loading.on_ready = self._on_ready
            self._scheduler.call_later(PROGRESS_INTERVAL_MS, self._tell)
            self._take()

    def close(self) -> None:
        """Take over no more."""
        self._is_closed = True
        self._logs.loading.on_ready = _nothing

    def _on_ready(self) -> None:
        """Come by on the loop's thread."""
        if not self._is_asked:
            self._is_asked = True
            try:
                self._loop.call_soon_threadsafe(self._take)
            except RuntimeError:
                pass  # The loop was closed under a broker that was killed.

    def _take(self) -> None:
        self._is_asked = False
        if self._is_closed or not self._logs.loading.all():
            return
        self._replica_manager.take_loaded()
        self._know_producers()
        if not self._logs.loading.all():
            progress = self._logs.loading.progress
            logger.info("%d logs are recovered, %s", progress.logs_done, bytes_text(progress.bytes_done))

    def _know_producers(self) -> None:
        floor = self._logs.largest_producer_id() + 1
        self._controller.producer_id_floor = max(self._controller.producer_id_floor, floor)
        self._controller.is_producer_id_floor_known = not self._logs.loading.all()

    def _tell(self) -> None:
        if self._is_closed or not self._logs.loading.all():
            return
        progress = self._logs.loading.progress
        waiting = sum(1 for one in self._logs.loading.all() if one.future is None)
        logger.info(
            "recovering: %d of %d logs, %s of %s%s",
            progress.logs_done,
            progress.logs_total,
            bytes_text(progress.bytes_done),
            bytes_text(progress.bytes_total),
            f"; {waiting} wait for room on their disk" if waiting else "",
        )
        self._scheduler.call_later(PROGRESS_INTERVAL_MS, self._tell)


_nothing: Callable[[], None] = lambda: None  # noqa: E731 (a name for what happens then)
