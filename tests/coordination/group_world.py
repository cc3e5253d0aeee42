"""A coordinator of groups with everything around it: topics, a clock, a log, and an eye on who is answered.

Each step is carried out as a broker would do it. After each it is checked that nobody was answered who did not wait,
or was answered before; `restarted` gives what a coordinator would be that is loaded from the log.
"""

from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple

from barnabas.coordination.classic_group import ClassicGroup, ClassicState
from barnabas.coordination.consumer_protocol import ConsumerProtocolSubscription, write_subscription
from barnabas.coordination.group_coordinator import GroupCoordinator
from barnabas.coordination.records import GROUP_KINDS, decode, encode
from barnabas.coordination.step import Client, CoordinatorRecord, Step, TopicDescription
from barnabas.coordinator_config import GroupConfig
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from barnabas.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponsePartitions,
)
from barnabas.wire.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

GROUP = "readers"
TOPIC = "news"
SETTLED = (ClassicState.STABLE, ClassicState.EMPTY)


class FakeTopics:
    """Topics by name, with ids made of their names."""

    def __init__(self, **partition_counts: int) -> None:
        self._topics = {name: describe(name, partitions) for name, partitions in partition_counts.items()}

    def by_name(self, name: str) -> TopicDescription | None:
        return self._topics.get(name)

    def by_id(self, topic_id: bytes) -> TopicDescription | None:
        return next((topic for topic in self._topics.values() if topic.topic_id == topic_id), None)

    def names(self) -> Iterable[str]:
        return list(self._topics)

    def create(self, name: str, partitions: int) -> None:
        self._topics[name] = describe(name, partitions)

    def delete(self, name: str) -> None:
        del self._topics[name]


def describe(name: str, partitions: int) -> TopicDescription:
    return TopicDescription(name, topic_id_of(name), partitions)


def topic_id_of(name: str) -> bytes:
    return name.encode()[:16].ljust(16, b".")


class LogEntry(NamedTuple):
    """A record of the log with the producer of its transaction, or the marker of one."""

    record: CoordinatorRecord | None
    producer_id: int | None = None
    is_commit: bool = False


class Answer(NamedTuple):
    """A reply, with the time at which it came."""

    message: Any
    at_ms: int


@dataclass
class World:
    """All there is around one shard."""

    config: GroupConfig = field(default_factory=GroupConfig)
    topics: FakeTopics = field(default_factory=lambda: FakeTopics(news=3, sports=1))
    now_ms: int = 1_000_000
    log: list[LogEntry] = field(default_factory=list)
    answers: dict[int, Answer] = field(default_factory=dict)
    waiting: set[int] = field(default_factory=set)
    settled: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._tickets = count(1)
        self._ids = count(1)
        self.coordinator = GroupCoordinator(self.config, self.topics, self.new_id)
        self.perform(self.coordinator.finish_loading(self.now_ms))

    def new_id(self) -> str:
        return str(next(self._ids))

    def ticket(self) -> int:
        ticket = next(self._tickets)
        self.waiting.add(ticket)
        return ticket

    def perform(self, step: Step, producer_id: int | None = None) -> Step:
        self.log += [LogEntry(record, producer_id) for record in step.records]
        for reply in step.replies:
            assert reply.ticket in self.waiting, f"{reply} is for nobody who waits"
            self.waiting.remove(reply.ticket)
            self.answers[reply.ticket] = Answer(reply.message, self.now_ms)
        self._note_settled()
        return step

    def answer(self, ticket: int) -> Any:
        """Return the answer to a request that is answered by now."""
        assert ticket in self.answers, "there is no answer yet"
        return self.answers[ticket].message

    # Time.

    def advance(self, ms: int) -> Step:
        """Let time go by, and call `tick` whenever the coordinator wants it."""
        end_ms = self.now_ms + ms
        everything = Step()
        while (deadline_ms := self.coordinator.next_deadline_ms) is not None and deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            everything.add(self.perform(self.coordinator.tick(self.now_ms)))
        self.now_ms = end_ms
        return everything

    # Members.

    def send_join(
        self,
        client_id: str = "a",
        member_id: str = "",
        *,
        instance_id: str | None = None,
        protocols: dict[str, bytes] | None = None,
        protocol_type: str = "consumer",
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        version: int = 9,
        group_id: str = GROUP,
    ) -> int:
        if protocols is None:
            protocols = {"range": subscription(TOPIC)}
        request = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols.items()],
        )
        ticket = self.ticket()
        client = Client(client_id, "/127.0.0.1")
        self.perform(self.coordinator.join_group(ticket, client, version, request, self.now_ms))
        return ticket

    def send_sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        instance_id: str | None = None,
        group_id: str = GROUP,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
        version: int = 4,
    ) -> int:
        request = SyncGroupRequest(
            group_id=group_id,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=name, assignment=data)
                for name, data in (assignments or {}).items()
            ],
        )
        ticket = self.ticket()
        self.perform(self.coordinator.sync_group(ticket, request, self.now_ms, version))
        return ticket

    def heartbeat(
        self, member_id: str, generation: int, *, instance_id: str | None = None, group_id: str = GROUP
    ) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=group_id, generation_id=generation, member_id=member_id, group_instance_id=instance_id
        )
        ticket = self.ticket()
        self.perform(self.coordinator.heartbeat(ticket, request, self.now_ms))
        return ErrorCode(self.answer(ticket).error_code)

    def leave(self, *identities: MemberIdentity, group_id: str = GROUP) -> list[ErrorCode]:
        request = LeaveGroupRequest(group_id=group_id, members=list(identities))
        ticket = self.ticket()
        self.perform(self.coordinator.leave_group(ticket, 5, request, self.now_ms))
        return [ErrorCode(member.error_code) for member in self.answer(ticket).members]

    # Offsets.

    def commit(
        self,
        offsets: dict[int, int],
        member_id: str = "",
        generation: int = -1,
        *,
        topic: str = TOPIC,
        instance_id: str | None = None,
        metadata: str | None = "",
        retention_ms: int = -1,
        version: int = 8,
        group_id: str = GROUP,
    ) -> list[ErrorCode]:
        partitions = [
            OffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=offset,
                committed_leader_epoch=7,
                committed_metadata=metadata,
            )
            for partition, offset in offsets.items()
        ]
        request = OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            retention_time_ms=retention_ms,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic, topic_id=topic_id_of(topic) if version >= 10 else bytes(16), partitions=partitions
                )
            ],
        )
        ticket = self.ticket()
        twin = deepcopy(self.coordinator, {id(self): self, id(self.topics): self.topics})
        plain = twin.commit_plain_offsets(version, request, self.now_ms)
        if plain is None:
            assert state_of_offsets(twin) == state_of_offsets(self.coordinator), "what is left to the long way is done"
        step = self.perform(self.coordinator.commit_offsets(ticket, version, request, self.now_ms))
        (answered,) = self.answer(ticket).topics
        if plain is not None:
            assert plain == step.records
            assert not any(partition.error_code for partition in answered.partitions)
            assert state_of_offsets(twin) == state_of_offsets(self.coordinator), "the short way does something else"
        assert (answered.name, answered.topic_id) == (topic, request.topics[0].topic_id)
        assert [partition.partition_index for partition in answered.partitions] == list(offsets)
        return [ErrorCode(partition.error_code) for partition in answered.partitions]

    def commit_in_transaction(
        self,
        producer_id: int,
        offsets: dict[int, int],
        member_id: str = "",
        generation: int = -1,
        *,
        topic: str = TOPIC,
        version: int = 5,
        group_id: str = GROUP,
    ) -> list[ErrorCode]:
        partitions = [
            TxnOffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
            for partition, offset in offsets.items()
        ]
        request = TxnOffsetCommitRequest(
            transactional_id=f"t{producer_id}",
            group_id=group_id,
            producer_id=producer_id,
            generation_id=generation,
            member_id=member_id,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=partitions)],
        )
        ticket = self.ticket()
        step = self.coordinator.commit_transactional_offsets(ticket, version, request, self.now_ms)
        self.perform(step, producer_id)
        (answered,) = self.answer(ticket).topics
        return [ErrorCode(partition.error_code) for partition in answered.partitions]

    def end_transaction(self, producer_id: int, is_commit: bool) -> None:
        self.log.append(LogEntry(None, producer_id, is_commit))
        self.coordinator.complete_transaction(producer_id, is_commit)

    def fetch(
        self,
        partitions: Iterable[int] = (0,),
        *,
        topic: str = TOPIC,
        topic_id: bytes = bytes(16),
        require_stable: bool = False,
        group_id: str = GROUP,
    ) -> list[OffsetFetchResponsePartitions]:
        topics = [OffsetFetchRequestTopics(name=topic, topic_id=topic_id, partition_indexes=list(partitions))]
        request = OffsetFetchRequestGroup(group_id=group_id, topics=topics)
        response = self.coordinator.fetch_offsets(request, require_stable, self.now_ms)
        assert (response.group_id, response.error_code) == (group_id, ErrorCode.NONE)
        return response.topics[0].partitions

    def offset(self, partition: int = 0, *, topic: str = TOPIC, group_id: str = GROUP) -> int:
        return self.fetch([partition], topic=topic, group_id=group_id)[0].committed_offset

    # What is there, and what a crash would leave.

    def group(self, group_id: str = GROUP) -> ClassicGroup:
        group = self.coordinator.groups[group_id]
        assert isinstance(group, ClassicGroup)
        return group

    def restarted(self) -> GroupCoordinator:
        """Return a coordinator that knows nothing but the log."""
        loaded = GroupCoordinator(self.config, self.topics, self.new_id)
        for entry in compacted(self.log):
            if entry.record is None:
                assert entry.producer_id is not None
                loaded.complete_transaction(entry.producer_id, entry.is_commit)
                continue
            # As bytes, as the log has it.
            record = decode(GROUP_KINDS, *encode(entry.record))
            assert record is not None
            if entry.producer_id is None:
                loaded.replay(record)
            else:
                loaded.replay_transactional(entry.producer_id, record)
        loaded.finish_loading(self.now_ms)
        return loaded

    def restart(self) -> None:
        """Go on with a coordinator that is loaded from the log; who waits gets an error."""
        self.perform(Step(replies=self.coordinator.waiting_replies(ErrorCode.NOT_COORDINATOR)))
        self.coordinator = self.restarted()
        self._note_settled()

    def _note_settled(self) -> None:
        for group_id in [*self.settled]:
            if group_id not in self.coordinator.groups:
                del self.settled[group_id]
        for group in self.coordinator.groups.values():
            if isinstance(group, ClassicGroup) and group.state in SETTLED:
                self.settled[group.group_id] = settled_state(group)


def compacted(log: list[LogEntry]) -> Iterator[LogEntry]:
    """What a loader may leave out: all but the last record of a key, unless transactions touch the key."""
    in_transactions = {repr(entry.record.key) for entry in log if entry.record and entry.producer_id is not None}
    last = {repr(entry.record.key): index for index, entry in enumerate(log) if entry.record}
    for index, entry in enumerate(log):
        key = repr(entry.record.key) if entry.record else ""
        is_live = entry.record is None or (last[key] == index and entry.record.value is not None)
        if is_live or key in in_transactions:
            yield entry


def state_of_offsets(coordinator: GroupCoordinator) -> object:
    """All that a commit changes."""
    timers = coordinator.timers
    return vars(coordinator.offsets), timers._deadlines, timers._armed, set(coordinator.groups)


def settled_state(group: ClassicGroup) -> object:
    """What must be the same after a crash, of a group that is Stable or Empty."""
    return (
        group.state,
        group.generation_id,
        group.protocol_type,
        group.protocol_name,
        group.leader_id,
        {
            member.member_id: (
                member.instance_id,
                member.client_id,
                member.session_timeout_ms,
                member.rebalance_timeout_ms,
                member.protocols[group.protocol_name or ""],
                member.assignment,
            )
            for member in group.members.values()
        },
    )


def subscription(*topics: str) -> bytes:
    """What a consumer sends with its protocols."""
    return write_subscription(ConsumerProtocolSubscription(topics=list(topics)), 1)
