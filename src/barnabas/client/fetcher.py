"""Reads partitions from given offsets on: one request a leader for all its partitions, sent to all leaders before the
first answer is waited for.

    fetcher = Fetcher(client, {TopicPartition("orders", 0): 42}, FetchOptions())
    for fetched in fetcher.poll():
        fetched.batches()       # raw, for whoever decodes them in another way
        fetched.records()       # one by one

Rule 1: the position of a partition moves when `poll` returns what lies before it, so that going on elsewhere from
`positions` misses nothing and repeats nothing.
Rule 2: a partition that fails in a way that another attempt may mend is left out of an answer, and raised when that
has gone on for `default_api_timeout_ms`. Others go on meanwhile.
Rule 3: partitions that brought something go to the end of the next request, because brokers fill answers in order.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

from barnabas.client.answers import error_of
from barnabas.client.client import Client
from barnabas.client.connection import ClientError, Connection, ConnectionFailedError
from barnabas.client.fetched import AbortedTransaction, FetchedPartition
from barnabas.client.offsets import EARLIEST, LATEST, IsolationLevel, offsets_at
from barnabas.client.retry import Retry
from barnabas.model import ZERO_TOPIC_ID, TopicPartition
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.wire.schema import VERSION_MAX

# The last version that names topics; later ones have their ids.
_VERSION_WITH_NAMES_MAX = 12

_NO_BYTES = memoryview(b"")

_Failures = dict[TopicPartition, ApiError | ConnectionFailedError]


class TopicRecreatedError(ClientError):
    """A topic was deleted and created again while it was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOptions:
    """How to fetch; names and defaults are those of Kafka's consumer. `none` makes an offset out of range an error."""

    fetch_max_wait_ms: int = 500
    fetch_min_bytes: int = 1
    fetch_max_bytes: int = 50 * 1024 * 1024
    max_partition_fetch_bytes: int = 1024 * 1024
    isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    auto_offset_reset: Literal["none", "earliest", "latest"] = "none"
    check_crcs: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A request that is on its way: what was asked, and the names of the topic ids in the answer."""

    connection: Connection
    partitions: list[TopicPartition]
    topic_names: dict[bytes, str]


class Fetcher:
    """The positions in some partitions, and what moves them."""

    def __init__(
        self, client: Client, positions: Mapping[TopicPartition, int], options: FetchOptions | None = None
    ) -> None:
        self._client = client
        self._options = FetchOptions() if options is None else options
        self._positions = dict(positions)
        self._topic_ids: dict[str, UUID] = {}
        self._failing: dict[TopicPartition, Retry] = {}

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """The next offset of each partition."""
        return self._positions

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on elsewhere, in a partition that may be new here."""
        self._positions[partition] = offset

    def drop(self, partition: TopicPartition) -> None:
        """Fetch no more of a partition."""
        self._positions.pop(partition, None)
        self._failing.pop(partition, None)

    def poll(self, max_wait_ms: int | None = None) -> list[FetchedPartition]:
        """Fetch once, and return what came; partitions with nothing new are in it too, without data.

        Raises:
            ApiError: An offset is out of range, or a partition can not be read, or not for too long.
            ConnectionFailedError: A leader can not be reached for too long.
            UnknownTopicError: A partition does not exist.
        """
        wait_ms = self._options.fetch_max_wait_ms if max_wait_ms is None else max_wait_ms
        failures: _Failures = {}
        asked: list[_Asked] = []
        fetched: list[FetchedPartition] = []
        try:
            self._ask(wait_ms, asked, failures)
            for request in asked:
                try:
                    answer = request.connection.receive()
                except ConnectionFailedError as error:
                    failures.update(dict.fromkeys(request.partitions, error))
                    continue
                fetched += self._read(answer, request, failures)
        except BaseException:
            # An answer that nobody waits for any more would be taken for that of the next request.
            for request in asked:
                if request.connection.in_flight:
                    request.connection.close()
            raise
        for each in fetched:
            self._failing.pop(each.partition, None)
        self._advance(fetched)
        if failures:
            self._handle(failures)
        return fetched

    def _advance(self, fetched: list[FetchedPartition]) -> None:
        """Move the positions behind what came."""
        stuck: FetchedPartition | None = None
        has_moved = False
        for each in fetched:
            next_offset = each.next_offset
            if next_offset > each.fetch_offset:
                has_moved = True
                del self._positions[each.partition]
                self._positions[each.partition] = next_offset
            elif each.data:
                stuck = each
        # A part of a batch may be all that fits behind other partitions, and comes first next time. But the first batch
        # of an answer comes whole since Fetch v3, however large it is: if it does not, it never will.
        if stuck is not None and not has_moved:
            raise error_of(
                ErrorCode.CORRUPT_MESSAGE,
                f"{stuck.partition} brought {len(stuck.data)} bytes at offset {stuck.fetch_offset}, but no whole batch",
            )

    def _ask(self, wait_ms: int, asked: list[_Asked], failures: _Failures) -> None:
        """Send a request to every leader."""
        led: dict[int, list[TopicPartition]] = {}
        for partition in self._positions:
            try:
                led.setdefault(self._client.leader_of(partition), []).append(partition)
            except (ApiError, ConnectionFailedError) as error:
                failures[partition] = error
        # Connections are opened before anything is sent, because opening one may ask for metadata.
        connections: dict[int, Connection] = {}
        for leader_id, partitions in led.items():
            try:
                connections[leader_id] = self._client.connection_to(leader_id)
            except (ApiError, ConnectionFailedError) as error:
                failures.update(dict.fromkeys(partitions, error))
        for leader_id, connection in connections.items():
            try:
                asked.append(self._send(connection, led[leader_id], wait_ms))
            except ConnectionFailedError as error:
                failures.update(dict.fromkeys(led[leader_id], error))

    def _send(self, connection: Connection, partitions: list[TopicPartition], wait_ms: int) -> _Asked:
        topics: dict[str, FetchTopic] = {}
        for partition in partitions:
            if partition.topic not in topics:
                topic_id = self._topic_id(partition.topic)
                topics[partition.topic] = FetchTopic(topic=partition.topic, topic_id=topic_id.bytes)
            topics[partition.topic].partitions.append(
                FetchPartition(
                    partition=partition.partition,
                    fetch_offset=self._positions[partition],
                    partition_max_bytes=self._options.max_partition_fetch_bytes,
                )
            )
        has_ids = all(self._topic_ids[name] != ZERO_TOPIC_ID for name in topics)
        version = connection.version_of("Fetch", VERSION_MAX if has_ids else _VERSION_WITH_NAMES_MAX)
        question = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=self._options.fetch_min_bytes,
            max_bytes=self._options.fetch_max_bytes,
            isolation_level=self._options.isolation_level,
            topics=list(topics.values()),
        )
        connection.send(question, version)
        names = {topic.topic_id: name for name, topic in topics.items()} if version > _VERSION_WITH_NAMES_MAX else {}
        return _Asked(connection=connection, partitions=partitions, topic_names=names)

    def _topic_id(self, name: str) -> UUID:
        """Return the id of a topic, which stays what it was at first: offsets of another topic mean nothing here."""
        found = self._client.topic(name).topic_id
        known = self._topic_ids.setdefault(name, found)
        if known != found:
            raise TopicRecreatedError(f"topic {name!r} was deleted and created again: its id was {known}, now {found}")
        return known

    def _read(self, answer: Any, asked: _Asked, failures: _Failures) -> list[FetchedPartition]:
        """Return the partitions of an answer that are fine, and note the others."""
        if answer.error_code != ErrorCode.NONE:
            failures.update(dict.fromkeys(asked.partitions, error_of(answer.error_code, "the fetch failed")))
            return []
        fetched = []
        for topic in answer.responses:
            name = asked.topic_names.get(topic.topic_id, "") if asked.topic_names else topic.topic
            for row in topic.partitions:
                partition = TopicPartition(name, row.partition_index)
                if partition not in self._positions:
                    continue
                if row.error_code != ErrorCode.NONE:
                    what = f"fetching {partition} from offset {self._positions[partition]}"
                    failures[partition] = error_of(row.error_code, what)
                    continue
                fetched.append(self._fetched(partition, row))
        # A partition that is not in the answer is simply asked for again.
        return fetched

    def _fetched(self, partition: TopicPartition, row: Any) -> FetchedPartition:
        is_committed = self._options.isolation_level == IsolationLevel.READ_COMMITTED
        aborted = (row.aborted_transactions or ()) if is_committed else ()
        return FetchedPartition(
            partition=partition,
            fetch_offset=self._positions[partition],
            high_watermark=row.high_watermark,
            last_stable_offset=row.last_stable_offset,
            log_start_offset=row.log_start_offset,
            data=memoryview(row.records) if row.records else _NO_BYTES,
            aborted=tuple(AbortedTransaction(each.producer_id, each.first_offset) for each in aborted),
            check_crcs=self._options.check_crcs,
        )

    def _handle(self, failures: _Failures) -> None:
        """Raise what no further attempt can mend, reset what is out of range, and wait before the next attempt."""
        self._client.forget_metadata()
        waiting: Retry | None = None
        for partition, error in failures.items():
            if isinstance(error, ApiError) and error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self._reset(partition, error)
                continue
            if not self._client.is_worth_another_attempt(error):
                raise error
            waiting = self._failing.setdefault(partition, self._client.retry())
            if waiting.seconds_left == 0.0:
                raise error
        if waiting is not None:
            waiting.pause(next(iter(failures.values())))

    def _reset(self, partition: TopicPartition, error: ApiError) -> None:
        if self._options.auto_offset_reset == "none":
            raise error
        timestamp = EARLIEST if self._options.auto_offset_reset == "earliest" else LATEST
        found = offsets_at(self._client, [partition], timestamp, self._options.isolation_level)
        self._positions[partition] = found[partition]
