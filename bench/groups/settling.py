"""Many members of many groups that join at once, each on a connection of its own, until every group is settled.

A member does what a client does: it joins, is given an id, joins with it, and syncs; the leader brings the assignments.
Then it sends heartbeats, and joins again when it is told to.

Rule 1: a group is settled when all its members have synced in one generation, and no later one has begun. All are
asked by heartbeats at the end, so that a group that is rebalancing again does not count.
"""

import select
import time
from collections.abc import Sequence
from typing import Any

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
from bench.groups.frames import (
    RECEIVE_BYTES,
    SILENCE_S_MAX,
    answer_of,
    frame_of,
    open_connection,
    open_socket,
    take_frames,
)
from bench.load.spec import LoadError

VERSIONS = {"JoinGroup": 9, "SyncGroup": 5, "Heartbeat": 4, "LeaveGroup": 5}
HEARTBEAT_S = 0.1
SESSION_TIMEOUT_MS = 45_000
REBALANCE_TIMEOUT_MS = 60_000
# About what the subscription to a topic, and an assignment of it, take.
METADATA = b"\0\1" + b"s" * 30
ASSIGNMENT = b"\0\1" + b"a" * 30


class Member:
    """One member and its connection."""

    def __init__(self, port: int, group: str) -> None:
        self.group = group
        self.socket = open_socket(port)
        self.member_id = ""
        self.generation = -1
        self.synced_generation = -1
        self.is_confirmed = False
        """A heartbeat after the sync was answered without an error."""
        self.next_heartbeat = float("inf")
        self.requests = 0
        self._asked = ""
        self._received = bytearray()

    def join(self) -> None:
        """Ask to join."""
        self.synced_generation = -1
        self.is_confirmed = False
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=METADATA)],
        )
        self._send("JoinGroup", request)

    def heartbeat(self) -> None:
        """Say that it is there."""
        request = HeartbeatRequest(group_id=self.group, generation_id=self.generation, member_id=self.member_id)
        self._send("Heartbeat", request)

    def receive(self) -> None:
        """Take the answer that is there, and go on from it."""
        data = self.socket.recv(RECEIVE_BYTES)
        if not data:
            raise LoadError("the broker closed a connection")
        self._received += data
        for frame in take_frames(self._received):
            answer = answer_of(self._asked, VERSIONS[self._asked], memoryview(frame))
            {"JoinGroup": self._joined, "SyncGroup": self._synced, "Heartbeat": self._heard}[self._asked](answer)

    def _joined(self, answer: Any) -> None:
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self.join()
            return
        self._check(answer.error_code, ErrorCode.NONE)
        self.member_id, self.generation = answer.member_id, answer.generation_id
        members = answer.members if answer.leader == answer.member_id else []
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                SyncGroupRequestAssignment(member_id=member.member_id, assignment=ASSIGNMENT) for member in members
            ],
        )
        self._send("SyncGroup", request)

    def _synced(self, answer: Any) -> None:
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.join()
            return
        self._check(answer.error_code, ErrorCode.NONE)
        self.synced_generation = self.generation
        self.next_heartbeat = time.monotonic() + HEARTBEAT_S

    def _heard(self, answer: Any) -> None:
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.join()
            return
        self._check(answer.error_code, ErrorCode.NONE)
        self.is_confirmed = True
        self.next_heartbeat = time.monotonic() + HEARTBEAT_S

    def _check(self, code: int, expected: ErrorCode) -> None:
        if code != expected:
            raise LoadError(f"{self._asked} of a member of {self.group} is answered {ErrorCode(code).name}")

    def _send(self, name: str, request: Any) -> None:
        self._asked = name
        self.next_heartbeat = float("inf")
        self.requests += 1
        self.socket.send(frame_of(request, VERSIONS[name]))  # It is small, and nothing else is on its way.


class Settling:
    """Connections that are open, of members that are about to join."""

    def __init__(self, port: int, groups: Sequence[str], members_a_group: int) -> None:
        self._port = port
        self._groups = groups
        self.members = [Member(port, group) for _ in range(members_a_group) for group in groups]
        self._by_number = {member.socket.fileno(): member for member in self.members}
        self._epoll = select.epoll()
        for number in self._by_number:
            self._epoll.register(number, select.EPOLLIN)

    def run(self) -> float:
        """Let all join at once; returns the seconds until the last one had synced in the generation that stayed."""
        started = time.monotonic()
        for member in self.members:
            member.join()
        settled_at = None
        while settled_at is None or not all(member.is_confirmed for member in self.members):
            self._turn(started)
            if any(member.synced_generation < 0 for member in self.members):
                settled_at = None
            elif settled_at is None:
                settled_at = time.monotonic()
                self._ask_all()
        self._check()
        return settled_at - started

    @property
    def requests(self) -> int:
        """How many requests were sent."""
        return sum(member.requests for member in self.members)

    def close(self) -> None:
        """Let all leave, and close the connections."""
        with open_connection(self._port) as connection:
            for group in self._groups:
                leaving = [member for member in self.members if member.group == group and member.member_id]
                members = [MemberIdentity(member_id=member.member_id) for member in leaving]
                connection.request(LeaveGroupRequest(group_id=group, members=members), VERSIONS["LeaveGroup"])
        for member in self.members:
            member.socket.close()
        self._epoll.close()

    def _turn(self, started: float) -> None:
        for number, _ in self._epoll.poll(HEARTBEAT_S / 10):
            self._by_number[number].receive()
        now = time.monotonic()
        if now > started + SILENCE_S_MAX:
            waiting = sum(not member.is_confirmed for member in self.members)
            raise LoadError(f"{waiting} members are not settled after {SILENCE_S_MAX:.0f} s")
        for member in self.members:
            if member.next_heartbeat <= now:
                member.heartbeat()

    def _ask_all(self) -> None:
        """Let all prove by a heartbeat that nothing has changed since they synced."""
        for member in self.members:
            member.is_confirmed = False
            if member.next_heartbeat < float("inf"):
                member.next_heartbeat = 0.0

    def _check(self) -> None:
        generations: dict[str, set[int]] = {}
        for member in self.members:
            generations.setdefault(member.group, set()).add(member.synced_generation)
        torn = [group for group, found in generations.items() if len(found) != 1]
        if torn:
            raise LoadError(f"the members of {torn[0]} are in generations {generations[torn[0]]}")
