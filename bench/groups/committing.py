"""Members that commit as fast as they are answered: one partition a commit, some connections, some commits in flight.

Frames are built beforehand. All have one correlation id, so all answers of a connection are the same bytes.
"""

import select
import socket
import time
from dataclasses import dataclass

from barnabas.client.connection import Connection
from barnabas.wire.apis import APIS, response_encoder
from barnabas.wire.errors import ErrorCode
from barnabas.wire.frames import response_frame
from barnabas.wire.messages.groups import (
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
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from bench.groups.frames import RECEIVE_BYTES, SILENCE_S_MAX, frame_of, open_connection, open_socket
from bench.groups.settling import ASSIGNMENT, METADATA, REBALANCE_TIMEOUT_MS, SESSION_TIMEOUT_MS
from bench.load.spec import LoadError

COMMIT = APIS[8]
COMMIT_VERSION, FETCH_VERSION = 9, 9
RING_FRAMES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """The only member of a group."""

    group: str
    member_id: str
    generation: int


class CommitLoad:
    """Groups of one member each, that commit offsets of one topic."""

    def __init__(self, port: int, topic: str, groups: list[str], in_flight: int) -> None:
        self._topic = topic
        self._in_flight = in_flight
        self._control = open_connection(port)
        self._memberships = [_join_alone(self._control, group) for group in groups]
        self._connections = [_Committing(port, topic, membership) for membership in self._memberships]

    def run(self, count: int) -> float:
        """Commit so often on each connection; returns the seconds."""
        epoll = select.epoll()
        by_number = {connection.socket.fileno(): connection for connection in self._connections}
        started = time.perf_counter()
        for number, connection in by_number.items():
            epoll.register(number, select.EPOLLIN)
            connection.begin(count, self._in_flight)
        busy = len(by_number)
        while busy:
            events = epoll.poll(SILENCE_S_MAX)
            if not events:
                raise LoadError(f"no commit is answered within {SILENCE_S_MAX:.0f} s")
            busy -= sum(by_number[number].receive() for number, _ in events)
        epoll.close()
        return time.perf_counter() - started

    def check(self) -> None:
        """Ask for what was committed last; raises LoadError if it is something else."""
        for membership, connection in zip(self._memberships, self._connections, strict=True):
            topics = [OffsetFetchRequestTopics(name=self._topic, partition_indexes=[0])]
            asked = OffsetFetchRequestGroup(group_id=membership.group, topics=topics)
            answer = self._control.request(OffsetFetchRequest(groups=[asked], require_stable=True), FETCH_VERSION)
            found = answer.groups[0].topics[0].partitions[0].committed_offset
            if found != connection.last_offset:
                raise LoadError(f"{membership.group} committed {connection.last_offset}, and is at {found}")

    def close(self) -> None:
        """Leave, and close all connections."""
        for membership, connection in zip(self._memberships, self._connections, strict=True):
            members = [MemberIdentity(member_id=membership.member_id)]
            self._control.request(LeaveGroupRequest(group_id=membership.group, members=members), 5)
            connection.socket.close()
        self._control.close()


class _Committing:
    """A connection that commits offsets 0 to 63 of partition 0, again and again."""

    def __init__(self, port: int, topic: str, membership: Membership) -> None:
        self.socket: socket.socket = open_socket(port)
        self._frames = [frame_of(_commit(topic, membership, offset), COMMIT_VERSION) for offset in range(RING_FRAMES)]
        taken = OffsetCommitResponseTopic(name=topic, partitions=[OffsetCommitResponsePartition(partition_index=0)])
        body = response_encoder(COMMIT, COMMIT_VERSION)(OffsetCommitResponse(topics=[taken]))
        self._answer = b"".join(response_frame(COMMIT, COMMIT_VERSION, 0, body))
        self._received = b""
        self._sent = self._answered = self._count = 0

    @property
    def last_offset(self) -> int:
        return (self._sent - 1) % RING_FRAMES

    def begin(self, count: int, in_flight: int) -> None:
        self._count = self._sent + count
        self._send(in_flight)

    def receive(self) -> bool:
        """Take answers, and send as many commits; tells whether all are answered."""
        self._received += self.socket.recv(RECEIVE_BYTES)
        count = len(self._received) // len(self._answer)
        whole = count * len(self._answer)
        if self._received[:whole] != self._answer * count:
            raise LoadError(f"a commit is answered {self._received[:whole].hex()}, not {self._answer.hex()}")
        self._received = self._received[whole:]
        self._answered += count
        self._send(min(count, self._count - self._sent))
        return count > 0 and self._answered == self._count

    def _send(self, count: int) -> None:
        frames = [self._frames[(self._sent + index) % RING_FRAMES] for index in range(count)]
        self._sent += count
        if frames:
            self.socket.sendall(b"".join(frames))


def _commit(topic: str, membership: Membership, offset: int) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    return OffsetCommitRequest(
        group_id=membership.group,
        generation_id_or_member_epoch=membership.generation,
        member_id=membership.member_id,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )


def _join_alone(connection: Connection, group: str) -> Membership:
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=METADATA)],
    )
    request.member_id = connection.request(request, 9).member_id
    joined = connection.request(request, 9)
    sync = SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=ASSIGNMENT)],
    )
    code = connection.request(sync, 5).error_code
    if code != ErrorCode.NONE:
        raise LoadError(f"the only member of {group} can not sync: {ErrorCode(code).name}")
    return Membership(group=group, member_id=joined.member_id, generation=joined.generation_id)
