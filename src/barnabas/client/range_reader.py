"""Reads one partition from an offset to another as fast as it comes: one request is always ahead of what is used.

    for fetched in RangeReader(client, partition, topic_id, 0, 5_000_000, FetchOptions()):
        fetched.batches()       # may begin before the range and end behind it, because batches come whole

The connection is the reader's own, since the client's could not be asked for metadata while an answer is on its way.

Rule 1: what was yielded is never yielded again: after a failure it goes on behind it, at whoever leads by then.
Rule 2: the topic is that of the id. Another one of the same name has other records at the same offsets.
Rule 3: holes, which compaction and transactions leave, are passed over; a range that begins before the log or reaches
behind its end is an error.
"""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from barnabas.client.answers import error_of, is_retriable
from barnabas.client.client import Client
from barnabas.client.connection import ClientError, Connection, ConnectionFailedError
from barnabas.client.fetched import AbortedTransaction, FetchedPartition
from barnabas.client.fetcher import FetchOptions, TopicRecreatedError
from barnabas.client.offsets import IsolationLevel
from barnabas.client.retry import Retry
from barnabas.model import ZERO_TOPIC_ID, TopicPartition
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from barnabas.wire.schema import VERSION_MAX

# The last version that names topics; later ones have their ids.
_VERSION_WITH_NAMES_MAX = 12

# What is asked for at the end of a range: what is left by the density so far, with some room for its changing.
_ROOM_BYTES = 64 * 1024
_ROOM_FACTOR = 1.1
# The guess before anything is known of the records.
_BYTES_PER_OFFSET = 1024

HOLE_SECONDS = 5.0
"""How long a broker must bring nothing before it is believed that there is nothing: with a slow disk, or a store far
away, it may answer so for a while."""

_NO_BYTES = memoryview(b"")


class RangeEndError(ClientError):
    """The records at the end of the range did not come in time, because the partition does not reach that far."""


class RangeReader:
    """A position in a partition, on its way to the end of a range."""

    def __init__(
        self,
        client: Client,
        partition: TopicPartition,
        topic_id: UUID,
        start_offset: int,
        end_offset: int,
        options: FetchOptions | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """Args:
        client: Whom to ask for leaders.
        partition: What to read.
        topic_id: The id that the topic must have; ZERO_TOPIC_ID where it is not known.
        start_offset: The first offset.
        end_offset: The offset behind the last.
        options: How to fetch.
        timeout_ms: How long to wait for records that should be there; `default_api_timeout_ms` where None.
        """
        self.position = start_offset
        self._client = client
        self._partition = partition
        self._topic_id = topic_id
        self._start_offset = start_offset
        self._end_offset = end_offset
        self._options = FetchOptions() if options is None else options
        self._timeout_ms = timeout_ms
        self._connection: Connection | None = None
        self._failing: Retry | None = None
        self._waiting: Retry | None = None
        self._empty_since = 0.0
        self._bytes = 0

    def __iter__(self) -> Iterator[FetchedPartition]:
        """Yield what comes, until the range is read.

        Raises:
            ApiError: The position is out of range, or the partition can not be read, or not for too long.
            ConnectionFailedError: The leader can not be reached for too long.
            UnknownTopicError: There is no such partition any more.
            TopicRecreatedError: There is another one.
            RangeEndError: The partition ends before the range does.
        """
        try:
            while self.position < self._end_offset:
                try:
                    fetched = self._fetch()
                except (ApiError, ConnectionFailedError) as error:
                    self._recover(error)
                    continue
                self._failing = None
                if self._advance(fetched):
                    self._ask_ahead()
                    yield fetched
        finally:
            self._disconnect()

    def _advance(self, fetched: FetchedPartition) -> bool:
        """Move behind what came, and tell whether something did."""
        next_offset = fetched.next_offset
        if next_offset > self.position:
            self._bytes += len(fetched.data)
            self.position = next_offset
            self._waiting = None
            return True
        if fetched.data:
            raise error_of(
                ErrorCode.CORRUPT_MESSAGE,
                f"{self._partition} brought {len(fetched.data)} bytes at offset {self.position}, but no whole batch",
            )
        self._wait_for_more(fetched)
        return False

    def _wait_for_more(self, fetched: FetchedPartition) -> None:
        """Wait before asking again where nothing came, unless the rest of the range is a hole."""
        end = fetched.high_watermark
        if self._options.isolation_level == IsolationLevel.READ_COMMITTED:
            end = min(end, fetched.last_stable_offset)
        now = self._client.clock.monotonic_seconds()
        if self._waiting is None:
            self._waiting = self._client.retry(self._timeout_ms)
            self._empty_since = now
        elif end >= self._end_offset and now - self._empty_since >= HOLE_SECONDS:
            # The broker has nothing to give, though it knows later offsets: compaction has left none.
            self.position = self._end_offset
            return
        known = f"it ends at {end}" if end >= 0 else "the broker brings nothing"
        self._waiting.pause(RangeEndError(f"{self._partition} is to be read to offset {self._end_offset}, but {known}"))

    def _ask_ahead(self) -> None:
        """Send the next request already; if that fails, the next step finds out and has the patience for it."""
        if self.position < self._end_offset and self._connection is not None:
            try:
                self._ask(self._connection)
            except ConnectionFailedError:
                self._disconnect()

    def _fetch(self) -> FetchedPartition:
        connection = self._connect()
        if not connection.in_flight:
            self._ask(connection)
        return self._read(connection.receive())

    def _connect(self) -> Connection:
        if self._connection is not None and self._connection.is_open:
            return self._connection
        self._check_topic()
        self._connection = self._client.own_connection_to(self._client.leader_of(self._partition))
        return self._connection

    def _check_topic(self) -> None:
        known = self._client.topic(self._partition.topic)
        if self._topic_id in (known.topic_id, ZERO_TOPIC_ID) and self._partition.partition < len(known.partitions):
            return
        # What the client knows may be from before this very topic was made, or got this partition.
        self._client.forget_metadata()
        found = self._client.topic(self._partition.topic).topic_id
        if self._topic_id not in (found, ZERO_TOPIC_ID):
            raise TopicRecreatedError(
                f"topic {self._partition.topic!r} was deleted and created again: "
                f"its id was {self._topic_id}, now {found}"
            )

    def _ask(self, connection: Connection) -> None:
        has_id = self._topic_id != ZERO_TOPIC_ID
        version = connection.version_of("Fetch", VERSION_MAX if has_id else _VERSION_WITH_NAMES_MAX)
        wanted = FetchPartition(
            partition=self._partition.partition, fetch_offset=self.position, partition_max_bytes=self._bytes_wanted()
        )
        question = FetchRequest(
            max_wait_ms=self._options.fetch_max_wait_ms,
            min_bytes=self._options.fetch_min_bytes,
            max_bytes=self._options.fetch_max_bytes,
            isolation_level=self._options.isolation_level,
            topics=[
                FetchTopic(topic=self._partition.topic, topic_id=self._topic_id.bytes, partitions=[wanted]),
            ],
        )
        connection.send(question, version)

    def _bytes_wanted(self) -> int:
        left = self._end_offset - self.position
        done = self.position - self._start_offset
        density = self._bytes / done if done else _BYTES_PER_OFFSET
        return min(self._options.max_partition_fetch_bytes, int(left * density * _ROOM_FACTOR) + _ROOM_BYTES)

    def _read(self, answer: Any) -> FetchedPartition:
        what = f"fetching {self._partition} from offset {self.position}"
        if answer.error_code != ErrorCode.NONE:
            raise error_of(answer.error_code, what)
        # Only one partition was asked for, so its name and id need not be compared.
        rows = [row for topic in answer.responses for row in topic.partitions]
        # A broker whose quota is used up answers without any partition, and says more a little later.
        row = rows[0] if rows else PartitionData(high_watermark=-1, last_stable_offset=-1, log_start_offset=-1)
        if row.error_code != ErrorCode.NONE:
            raise error_of(row.error_code, what)
        is_committed = self._options.isolation_level == IsolationLevel.READ_COMMITTED
        aborted = (row.aborted_transactions or ()) if is_committed else ()
        return FetchedPartition(
            partition=self._partition,
            fetch_offset=self.position,
            high_watermark=row.high_watermark,
            last_stable_offset=row.last_stable_offset,
            log_start_offset=row.log_start_offset,
            data=memoryview(row.records) if row.records else _NO_BYTES,
            aborted=tuple(AbortedTransaction(each.producer_id, each.first_offset) for each in aborted),
            check_crcs=self._options.check_crcs,
        )

    def _recover(self, error: ApiError | ConnectionFailedError) -> None:
        """Wait before the next attempt, or raise what no attempt can mend."""
        self._disconnect()
        # Whoever knows offsets has spoken to the cluster before: a connection that fails is not a wrong address here.
        if isinstance(error, ApiError) and not is_retriable(error):
            raise error
        self._client.forget_metadata()
        if self._failing is None:
            self._failing = self._client.retry()
        self._failing.pause(error)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
