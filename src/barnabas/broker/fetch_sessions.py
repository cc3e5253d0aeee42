"""FetchSessionCache: what a client fetches, remembered, so that a fetch names only what changed (KIP-227).

    client                                     broker
    session 0, epoch 0, all partitions   -->   makes session 17, answers all partitions
    session 17, epoch 1, what changed    -->   fetches all, answers only partitions with something new
    session 17, epoch -1                 -->   forgets it

Rule 1: the epoch of a session counts its fetches, so that a lost or repeated one is noticed and the client starts anew.
Rule 2: there are at most `max.incremental.fetch.session.cache.slots`; a session that was idle for two minutes makes
room for a new one. Without room a client is served all the same, with full fetches.
"""

import itertools
import random
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from barnabas.clock import Clock
from barnabas.model import NO_LEADER_EPOCH, NO_OFFSET
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, PartitionData
from barnabas.wire.schema import ZERO_UUID

NO_SESSION = 0
FINAL_EPOCH = -1
INITIAL_EPOCH = 0
EPOCH_MAX = 2**31 - 1
SESSION_ID_MAX = 2**31 - 1
EVICTION_SECONDS = 120.0

TopicKey = str | bytes
"""The name of a topic or, from version 13 on, its id."""
Key = tuple[TopicKey, int]


@dataclass(slots=True)
class FetchTarget:
    """One partition of a fetch, and what its client was last told of it."""

    topic: TopicKey
    partition: int
    fetch_offset: int = 0
    max_bytes: int = 0
    current_leader_epoch: int = NO_LEADER_EPOCH
    last_fetched_epoch: int = NO_LEADER_EPOCH
    told_high_watermark: int = NO_OFFSET
    told_log_start_offset: int = NO_OFFSET

    def update(self, asked: FetchPartition) -> None:
        """Take what a request says of the partition."""
        self.fetch_offset = asked.fetch_offset
        self.max_bytes = asked.partition_max_bytes
        self.current_leader_epoch = asked.current_leader_epoch
        self.last_fetched_epoch = asked.last_fetched_epoch

    def is_news(self, data: PartitionData) -> bool:
        """Tell whether an answer has to say something of the partition, and note that it does."""
        is_new = (
            len(data.records) > 0 if isinstance(data.records, bytes) else data.records is not None
        ) or data.error_code != 0
        if data.high_watermark != self.told_high_watermark:
            self.told_high_watermark = data.high_watermark
            is_new = True
        if data.log_start_offset != self.told_log_start_offset:
            self.told_log_start_offset = data.log_start_offset
            is_new = True
        if data.error_code:
            # A client that was told of an error is told all of the partition again when it works.
            self.told_high_watermark = NO_OFFSET
        return is_new or data.diverging_epoch.end_offset >= 0


class FetchSession:
    """The partitions of one client's fetches."""

    __slots__ = ("epoch", "last_used", "session_id", "targets", "uses_topic_ids")

    def __init__(self, session_id: int, uses_topic_ids: bool, last_used: float) -> None:
        self.session_id = session_id
        self.uses_topic_ids = uses_topic_ids
        self.last_used = last_used
        self.epoch = 1
        self.targets: OrderedDict[Key, FetchTarget] = OrderedDict()


@dataclass(frozen=True, slots=True)
class FetchContext:
    """What a fetch is about, with or without a session."""

    targets: list[FetchTarget]
    session: FetchSession | None
    is_incremental: bool

    @property
    def session_id(self) -> int:
        """The session that the client may go on with, or 0."""
        return self.session.session_id if self.session else NO_SESSION

    def answered(self, answers: Iterable[tuple[FetchTarget, PartitionData]]) -> list[tuple[FetchTarget, PartitionData]]:
        """Return what has to be in the answer, and note that the client knows it."""
        told = []
        for target, data in answers:
            is_news = target.is_news(data)
            if is_news or not self.is_incremental:
                told.append((target, data))
            if self.session is not None and data.records is not None and data.records != b"":
                key = (target.topic, target.partition)
                if key in self.session.targets:
                    self.session.targets.move_to_end(key)  # The others come first next time.
        return told


class FetchSessionCache:
    """All sessions of a broker."""

    def __init__(self, clock: Clock, slots: int) -> None:
        self._clock = clock
        self._slots = slots
        # The least recently used first.
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def context_for(self, body: FetchRequest, uses_topic_ids: bool) -> FetchContext:
        """Return what a fetch is about; raises ApiError when its session is not known, or it is not its turn."""
        if body.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._sessions.pop(body.session_id, None)
            targets = _targets(body, uses_topic_ids)
            if body.session_epoch == FINAL_EPOCH or not targets:
                return FetchContext(list(targets.values()), None, is_incremental=False)
            return FetchContext(list(targets.values()), self._create(targets, uses_topic_ids), is_incremental=False)
        session = self._sessions.get(body.session_id)
        if session is None:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"there is no fetch session {body.session_id}")
        if session.epoch != body.session_epoch:
            message = f"fetch session {body.session_id} is at epoch {session.epoch}, not {body.session_epoch}"
            raise ApiError(ErrorCode.INVALID_FETCH_SESSION_EPOCH, message)
        if session.uses_topic_ids != uses_topic_ids:
            message = f"fetch session {body.session_id} began with another way to name topics"
            raise ApiError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, message)
        return self._continue(session, body)

    def _continue(self, session: FetchSession, body: FetchRequest) -> FetchContext:
        for key, asked in _asked(body, session.uses_topic_ids):
            target = session.targets.get(key)
            if target is None:
                target = session.targets[key] = FetchTarget(*key)
            target.update(asked)
        for topic in body.forgotten_topics_data:
            name = topic.topic_id if session.uses_topic_ids else topic.topic
            for partition in topic.partitions:
                session.targets.pop((name, partition), None)
        session.epoch = 1 if session.epoch == EPOCH_MAX else session.epoch + 1
        session.last_used = self._clock.monotonic_seconds()
        self._sessions.move_to_end(session.session_id)
        if not session.targets:
            del self._sessions[session.session_id]
            return FetchContext([], None, is_incremental=False)
        return FetchContext(list(session.targets.values()), session, is_incremental=True)

    def _create(self, targets: OrderedDict[Key, FetchTarget], uses_topic_ids: bool) -> FetchSession | None:
        now = self._clock.monotonic_seconds()
        if len(self._sessions) >= self._slots:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now - oldest.last_used < EVICTION_SECONDS:
                return None
            del self._sessions[oldest.session_id]
            self.evictions += 1
        # At random, so that a client of the broker before a restart does not meet the session of another.
        numbers = (random.randint(1, SESSION_ID_MAX) for _ in itertools.count())
        session_id = next(number for number in numbers if number not in self._sessions)
        session = self._sessions[session_id] = FetchSession(session_id, uses_topic_ids, now)
        session.targets = targets
        return session


def _asked(body: FetchRequest, uses_topic_ids: bool) -> Iterable[tuple[Key, FetchPartition]]:
    for topic in body.topics:
        name: TopicKey = topic.topic_id if uses_topic_ids else topic.topic
        for partition in topic.partitions:
            yield (name, partition.partition), partition


def _targets(body: FetchRequest, uses_topic_ids: bool) -> OrderedDict[Key, FetchTarget]:
    targets: OrderedDict[Key, FetchTarget] = OrderedDict()
    for key, asked in _asked(body, uses_topic_ids):
        target = targets[key] = FetchTarget(*key)
        target.update(asked)
    return targets


def topic_names(key: TopicKey) -> tuple[str, bytes]:
    """Return name and id of a topic as an answer has them: the one that was asked by, and nothing for the other."""
    return (key, ZERO_UUID) if isinstance(key, str) else ("", key)
