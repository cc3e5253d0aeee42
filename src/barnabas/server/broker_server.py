"""BrokerServer: puts a broker together, starts it in order, and stops it in the reverse order.

    start: scheduler, metadata, logs, replicas, controller, coordinators, request handling, sockets, registration, ready
    stop:  sockets take nothing new, what is under way is answered, logs are flushed, checkpoints and the marker written

Rule 1: a failure on the way gives back everything that had started, and is one clear line.
Rule 2: ready means that a client is answered. Until then nobody can connect.
Rule 3: a broker that was killed comes back with everything that it promised; a broker that was stopped comes back
without reading its logs again.
"""

import asyncio
import logging
import os
import resource
from collections.abc import Callable, Collection
from enum import Enum
from typing import Any

from barnabas.broker import disk_watch
from barnabas.broker.apis.commit_shortcut import OFFSET_COMMIT_KEY, CommitShortcut
from barnabas.broker.apis.produce import ProduceShortcut
from barnabas.broker.bulk_loads import BulkLoads
from barnabas.broker.coordinator_shards import CoordinatorShards
from barnabas.broker.disk_watch import DiskWatch
from barnabas.broker.dispatch import PRODUCE_KEY, routes
from barnabas.broker.dynamic_config import DynamicConfig
from barnabas.broker.faults import Faults
from barnabas.broker.fetch_sessions import FetchSessionCache
from barnabas.broker.groups import Groups
from barnabas.broker.internal_topics import COORDINATOR_TOPICS, GROUP_TOPIC, TRANSACTION_TOPIC
from barnabas.broker.log_cleaner import LogCleaner, LogCleanerOptions
from barnabas.broker.log_recovery import LogRecovery
from barnabas.broker.log_upkeep import LogUpkeep
from barnabas.broker.producer_ids import ProducerIds
from barnabas.broker.replica_manager import ReplicaManager, ReplicaManagerOptions
from barnabas.broker.replica_moves import ReplicaMoves, ReplicaMovesOptions
from barnabas.broker.request_channel import RequestChannel
from barnabas.broker.scheduler import IoPool, Scheduler
from barnabas.broker.services import Services
from barnabas.broker.topic_changes import TopicChanges
from barnabas.broker.transactions import Transactions
from barnabas.broker_config import Endpoint, Settings
from barnabas.clock import Clock, SystemClock
from barnabas.cluster import nodes
from barnabas.cluster.controller import Controller
from barnabas.cluster.metadata_cache import MetadataCache
from barnabas.cluster.store import MetadataStore
from barnabas.config import LogConfig
from barnabas.model import TopicPartition
from barnabas.server.socket_server import SocketServer
from barnabas.storage.checkpoint import META_PROPERTIES, read_properties
from barnabas.storage.files import Files, OsFiles
from barnabas.storage.log import Log
from barnabas.storage.log_loading import EAGER_RECOVERY_BYTES
from barnabas.storage.log_manager import LogManager, LogManagerOptions
from barnabas.wire.errors import ApiError

logger = logging.getLogger(__name__)

METADATA_FILE = "metadata.sqlite"
DRAIN_SECONDS = 10.0
STOP_ORDER = ("cleaner", "moves", "scheduler", "recovery", "pool", "logs", "metadata", "directories")
"""What has started is stopped in this order: nothing new happens, what happens ends, and then what it needed goes."""


class BrokerState(Enum):
    """What a broker is doing; the numbers are Kafka's."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERING_FROM_UNCLEAN_SHUTDOWN = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


class StartError(Exception):
    """The broker can not start; the message is one sentence that says why."""


class BrokerServer:
    """One broker, on the loop that `start` is called on."""

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock | None = None,
        files: Files | None = None,
        on_fatal: Callable[[str], None] | None = None,
        is_upkept: bool = True,
    ) -> None:
        """Without upkeep nothing happens by itself: no retention, no checkpoints on schedule, no removal of files."""
        self._settings = settings
        self._is_upkept = is_upkept
        self._clock = clock or SystemClock()
        self._files = files or OsFiles()
        self._on_fatal = on_fatal or (lambda reason: None)
        self.state = BrokerState.NOT_RUNNING
        self.listening: dict[str, Endpoint] = {}
        # How to stop what has started, by its word in STOP_ORDER.
        self._started: dict[str, Callable[[], object]] = {}
        self.faults: Faults | None = None
        self._disk_watch: DiskWatch | None = None

    # Start.

    async def start(self) -> None:
        """Start everything; raises what went wrong after giving back what had started."""
        self.state = BrokerState.STARTING
        self._started_seconds = self._clock.monotonic_seconds()
        try:
            await self._start()
        except BaseException:
            await self._undo()
            raise
        self.state = BrokerState.RUNNING

    async def _start(self) -> None:
        loop = asyncio.get_running_loop()
        _raise_file_limit()
        for name in self._settings.ignored:
            logger.warning("the setting %s is not known here and is ignored", name)
        self.scheduler = Scheduler(loop, self._clock)
        self._started["scheduler"] = self.scheduler.close
        self._pool = IoPool(loop, self._settings.broker.num_io_threads)
        self._started["pool"] = self._pool.close
        self._open_metadata(loop)
        self._load_logs()
        self._replicas(loop)
        await self._start_controller()
        self._coordinators()
        self._requests(loop)
        self._log_recovery.start()
        self._clean_logs(loop)
        self._replica_moves.start()
        self._schedule()
        self._open_sockets(loop)

    def _open_metadata(self, loop: asyncio.AbstractEventLoop) -> None:
        """Read the metadata. The first log directory has it, so it is locked before."""
        self._log_manager = LogManager(
            LogManagerOptions(
                files=self._files,
                clock=self._clock,
                config=self._settings.manager,
                topic_config=self._topic_config,
                identity={"node.id": str(self._settings.broker.node_id)},
                on_flush_due=lambda log: self._replica_manager.flusher.request(log),
                on_roll=self._on_roll,
                on_full=disk_watch.on_loop(loop, lambda: self._disk_watch),
            )
        )
        self._log_manager.take_directories()
        self._started["directories"] = self._log_manager.release
        # Whatever is refused is refused before a file is made.
        self._log_manager.check_identities()
        self._log_manager.disk_room.check(self._log_manager.directories)
        path = self._metadata_path()
        self._store = MetadataStore(path, loop.call_soon_threadsafe)
        self._started["metadata"] = self._store.close
        first = self._log_manager.directories[0]
        self._store.make_room = lambda: self._log_manager.disk_room.note_full(first)
        self._cache = MetadataCache(self._store.tree)
        self._config = DynamicConfig(self._settings, self._cache, self._settings.broker.node_id)

    def _metadata_path(self) -> str:
        """Return where the metadata is; raises StartError when the folders were given in another order before."""
        first, *others = [os.path.join(directory.path, METADATA_FILE) for directory in self._log_manager.directories]
        for other in others:
            if os.path.exists(other):
                raise StartError(
                    f"the metadata is in {other}, but log.dirs begins with {os.path.dirname(first)}; "
                    "put the folder that has the metadata first"
                )
        return first

    def _check_folders(self) -> None:
        """Raise StartError when partitions are in no folder and a folder is new: its disk is probably not mounted."""
        new = [directory.path for directory in self._log_manager.directories if directory.is_new]
        missing = [
            f"{image.name}-{index}"
            for image in self._cache.topics.values()
            for index in range(len(image.partitions))
            if TopicPartition(image.name, index) not in self._log_manager.current_logs
            and TopicPartition(image.name, index) not in self._log_manager.loading.current
            and TopicPartition(image.name, index) not in self._log_manager.offline_partitions
        ]
        if new and missing:
            some = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
            raise StartError(
                f"{len(missing)} partitions ({some}) are in no log directory, and {', '.join(new)} is new: "
                "is its disk mounted? Without that folder in log.dirs they start empty"
            )

    def _topic_config(self, name: str) -> LogConfig:
        return self._config.topic(name)

    def _on_roll(self, log: Log) -> None:
        self._log_upkeep.on_roll(log)

    def _load_logs(self) -> None:
        self.state = BrokerState.RECOVERING_FROM_UNCLEAN_SHUTDOWN
        # Topics that Kafka wrote are taken over with all their logs, or not at all.
        has_adopted = self._store.tree.get(nodes.ADOPTED) is not None
        self._log_manager.start(eager_bytes=EAGER_RECOVERY_BYTES if has_adopted else None)
        self.state = BrokerState.STARTING
        self._started["logs"] = self._log_manager.close_logs
        self._check_folders()

    def _replicas(self, loop: asyncio.AbstractEventLoop) -> None:
        self._replica_manager = ReplicaManager(
            ReplicaManagerOptions(
                node_id=self._settings.broker.node_id,
                log_manager=self._log_manager,
                cache=self._cache,
                loop=loop,
                scheduler=self.scheduler,
                pool=self._pool,
                on_fatal=self._on_fatal,
            )
        )
        self._log_upkeep = LogUpkeep(self._log_manager, self._replica_manager, self._pool, self._clock, self._on_fatal)
        self._disk_watch = DiskWatch(
            self._log_manager, self._replica_manager, self.scheduler, self._log_upkeep.make_room, self._on_fatal
        )

    async def _start_controller(self) -> None:
        self._controller = Controller(
            self._store,
            self._cache,
            self._settings.broker.node_id,
            self._clock,
            self._config.check_topic_overrides,
        )
        await _done(lambda done: self._controller.start(done, cluster_id=self._known_cluster_id()))
        self._log_recovery = LogRecovery(
            self._log_manager, self._replica_manager, self._controller, self.scheduler, self.scheduler.loop
        )
        self._started["recovery"] = self._log_recovery.close
        self._topic_changes = TopicChanges(
            self._controller, self._cache, self._config, self._log_manager, self._replica_manager
        )
        await _done(self._topic_changes.start)

    def _known_cluster_id(self) -> str | None:
        """Return the cluster id of a data directory that Kafka wrote."""
        path = os.path.join(self._log_manager.directories[0].path, META_PROPERTIES)
        return read_properties(self._files, path).get("cluster.id") if self._cache.cluster_id is None else None

    def _coordinators(self) -> None:
        """Begin to read the logs of the coordinators; clients are told to come again until that is done."""
        cache, manager, pool, clock = self._cache, self._replica_manager, self._pool, self._clock
        self._producer_ids = ProducerIds(self._controller)
        self._groups = Groups(self._config, cache, manager, pool, clock)
        self._transactions = Transactions(self._config, cache, manager, self._groups, self._producer_ids, pool, clock)
        shards: dict[str, CoordinatorShards[Any]] = {
            GROUP_TOPIC: self._groups.shards,
            TRANSACTION_TOPIC: self._transactions.shards,
        }

        def partitions_changed(topics: Collection[str]) -> None:
            for name in shards.keys() & topics:
                shards[name].refresh()

        manager.partition_listeners.append(partitions_changed)
        partitions_changed(COORDINATOR_TOPICS)
        self._topic_changes.listeners.append(lambda name: self._groups.on_topics_changed([name]))

    def _requests(self, loop: asyncio.AbstractEventLoop) -> None:
        clock = self._clock if self._is_upkept else None
        journal = self._log_manager.load_journal
        self._bulk_loads = BulkLoads(self._files, journal, self._replica_manager, self._pool, clock)
        self._move_replicas()
        self.services = Services(
            node_id=self._settings.broker.node_id,
            clock=self._clock,
            scheduler=self.scheduler,
            pool=self._pool,
            config=self._config,
            cache=self._cache,
            controller=self._controller,
            log_manager=self._log_manager,
            replica_manager=self._replica_manager,
            fetch_sessions=FetchSessionCache(self._clock, self._settings.broker.fetch_session_slots),
            producer_ids=self._producer_ids,
            topic_changes=self._topic_changes,
            groups=self._groups,
            transactions=self._transactions,
            log_retention=self._log_upkeep.retention,
            bulk_loads=self._bulk_loads,
            replica_moves=self._replica_moves,
            state_name=lambda: self.state.name,
            request_count=lambda: sum(one.requests for one in self.channel.api_stats.values()),
            started_seconds=self._started_seconds,
        )
        queued_max = self._settings.broker.queued_max_requests
        self.channel = RequestChannel(self.services, routes(), self._clock, queued_max)
        shortcut = ProduceShortcut(self.services)
        self.channel.add_shortcut(PRODUCE_KEY, shortcut, shortcut.plain)
        commit_stats = self.channel.api_stats[OFFSET_COMMIT_KEY]
        self.channel.add_shortcut(OFFSET_COMMIT_KEY, CommitShortcut(self.services, commit_stats))

    def _move_replicas(self) -> None:
        self._replica_moves = ReplicaMoves(
            ReplicaMovesOptions(
                files=self._files,
                clock=self._clock,
                scheduler=self.scheduler,
                pool=self._pool,
                logs=self._log_manager,
                replicas=self._replica_manager,
                bulk_loads=self._bulk_loads,
                let_go=lambda name: self.log_cleaner.let_go(name),
            )
        )
        self._started["moves"] = self._replica_moves.stop

    def _schedule(self) -> None:
        """Begin what is done again and again."""
        if not self._is_upkept:
            return
        assert self._disk_watch is not None
        self._disk_watch.start()
        self._log_upkeep.start(self.scheduler, self._settings.broker)
        self.scheduler.every(60_000, self._controller.remove_old_config_changes)
        self.log_cleaner.start()

    def _clean_logs(self, loop: asyncio.AbstractEventLoop) -> None:
        self.log_cleaner = LogCleaner(
            LogCleanerOptions(
                loop=loop,
                files=self._files,
                clock=self._clock,
                scheduler=self.scheduler,
                pool=self._pool,
                logs=self._log_manager,
                flusher=self._replica_manager.flusher,
                config=self._settings.broker,
                on_failed=self._replica_manager.on_log_failed,
                on_cleaned=lambda name: self._log_upkeep.retention.request([name.topic]),
            )
        )
        self._log_upkeep.retention.is_held = lambda name: name in self.log_cleaner.running
        self._replica_manager.partition_listeners.append(self.log_cleaner.on_partitions_changed)
        self._started["cleaner"] = self.log_cleaner.stop
        self.services.cleaning_of = self.log_cleaner.cleaning_of
        self.services.first_dirty_offset_of = self.log_cleaner.first_dirty_offset_of

    def _open_sockets(self, loop: asyncio.AbstractEventLoop) -> None:
        self.sockets = SocketServer(
            loop, self.channel, self.scheduler, self._pool, self._clock, lambda: self._config.broker
        )
        self.listening = self.services.listening = self.sockets.start()

    def enable_faults(self) -> Faults:
        """Let a test ask for faults; only then does every request look for one."""
        self.faults = self.channel.faults = Faults(self.scheduler.call_later)
        return self.faults

    # Stop.

    async def stop(self) -> None:
        """Answer what is under way, flush, write the checkpoints, and mark the log directories clean."""
        if self.state is not BrokerState.RUNNING:
            return
        self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
        self.sockets.stop_listening()
        self._replica_manager.delayed_fetch.expire_all()
        self._groups.shards.close()
        self._transactions.shards.close()
        await self.sockets.drain(DRAIN_SECONDS)
        self.state = BrokerState.SHUTTING_DOWN
        self._replica_manager.shutdown()
        await self.sockets.close()
        await self._undo()

    async def _undo(self) -> None:
        """Stop what was started; an error of one part does not keep the others."""
        if hasattr(self, "sockets"):
            self.sockets.stop_listening()
        for name in STOP_ORDER:
            stop = self._started.pop(name, None)
            if stop is not None:
                try:
                    stop()
                except Exception:
                    logger.exception("the %s of the broker could not be stopped in order", name)
        self.state = BrokerState.NOT_RUNNING


async def _done(begin: Callable[[Callable[[object], None]], None]) -> object:
    """Wait for something that calls back; an ApiError it calls back with is raised."""
    future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    begin(lambda result: future.set_result(result))
    result = await future
    if isinstance(result, ApiError):
        raise StartError(result.message)
    return result


def _raise_file_limit() -> None:
    """Allow as many open files as the system lets us: every connection and many segments are one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
