"""Scripts of what happens to groups, as in the testdata of etcd's raft.

    # A comment.
    join a
    ----
    a: MEMBER_ID_REQUIRED a-1

A block is one command or more, four dashes, and what comes out of them until an empty line. Clients are single words;
each remembers its member id, its generation, and who is in it if it leads. The commands:

    config <setting>=<value> ...                  at the beginning only
    join <client> [version=] [instance=] [protocols=range,sticky] [topics=news] [session=] [rebalance=] [type=]
    forget <client>                               the client starts anew, and knows nothing
    sync <client> [leader]                        a leader assigns `for <member id>` to each member
    heartbeat <client>
    leave <client> ...
    remove instance=<id>                          what an operator does
    commit <client>|nobody <topic>:<partition>=<offset> ...
    begin <producer> <topic>:<partition>=<offset> ...   commits offsets in a transaction
    end <producer> commit|abort
    fetch <topic>:<partition> ... [stable]
    tick <milliseconds>                           time goes by; answers show when they came
    state                                         of the group
    delete                                        the group
    restart                                       the coordinator, from its log
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from barnabas.coordination.classic_group import ClassicGroup
from barnabas.coordination.group_records import GroupMetadataKey, OffsetCommitKey
from barnabas.coordinator_config import GroupConfig
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.groups import JoinGroupResponse, MemberIdentity, SyncGroupResponse
from tests.coordination.group_world import GROUP, LogEntry, World, subscription

DASHES = "----"


@dataclass
class ScriptClient:
    """What a client remembers."""

    name: str
    member_id: str = ""
    generation: int = -1
    instance_id: str | None = None
    members: list[str] = field(default_factory=list)


class Script:
    """Carries out commands, and tells what came out."""

    def __init__(self) -> None:
        self._world = World()
        self._clients: dict[str, ScriptClient] = {}
        self._asked: dict[int, ScriptClient] = {}
        self._told: set[int] = set()
        self._written = 0
        self._began_ms = self._world.now_ms

    def run(self, line: str) -> list[str]:
        """Carry out one command."""
        command, *words = line.split()
        options = dict(word.split("=", 1) for word in words if "=" in word and ":" not in word)
        plain = [word for word in words if "=" not in word or ":" in word]
        handler: Callable[[list[str], dict[str, str]], list[str]] = getattr(self, f"_do_{command}")
        output = handler(plain, options)
        return [*self._new_answers(), *self._new_records(), *output]

    def _client(self, name: str) -> ScriptClient:
        return self._clients.setdefault(name, ScriptClient(name))

    # Commands.

    def _do_config(self, words: list[str], options: dict[str, str]) -> list[str]:
        values: dict[str, Any] = {name: int(value) for name, value in options.items()}
        self._world = World(config=GroupConfig(**values))
        return []

    def _do_join(self, words: list[str], options: dict[str, str]) -> list[str]:
        client = self._client(words[0])
        client.instance_id = options.get("instance", client.instance_id)
        topics = options.get("topics", "news").split(",")
        ticket = self._world.send_join(
            client.name,
            client.member_id,
            instance_id=client.instance_id,
            protocols={name: subscription(*topics) for name in options.get("protocols", "range").split(",")},
            protocol_type=options.get("type", "consumer"),
            session_ms=int(options.get("session", 10_000)),
            rebalance_ms=int(options.get("rebalance", 60_000)),
            version=int(options.get("version", 9)),
        )
        self._asked[ticket] = client
        return []

    def _do_forget(self, words: list[str], options: dict[str, str]) -> list[str]:
        self._clients[words[0]] = ScriptClient(words[0], instance_id=self._client(words[0]).instance_id)
        return []

    def _do_sync(self, words: list[str], options: dict[str, str]) -> list[str]:
        client = self._client(words[0])
        assignments = {member_id: f"for {member_id}".encode() for member_id in client.members if "leader" in words}
        ticket = self._world.send_sync(client.member_id, client.generation, assignments, instance_id=client.instance_id)
        self._asked[ticket] = client
        return []

    def _do_heartbeat(self, words: list[str], options: dict[str, str]) -> list[str]:
        client = self._client(words[0])
        error = self._world.heartbeat(client.member_id, client.generation, instance_id=client.instance_id)
        return [f"{client.name}: {error.name}"]

    def _do_leave(self, words: list[str], options: dict[str, str]) -> list[str]:
        clients = [self._client(word) for word in words]
        errors = self._world.leave(
            *(MemberIdentity(member_id=client.member_id, group_instance_id=client.instance_id) for client in clients)
        )
        return [f"{client.name}: {error.name}" for client, error in zip(clients, errors, strict=True)]

    def _do_remove(self, words: list[str], options: dict[str, str]) -> list[str]:
        (error,) = self._world.leave(MemberIdentity(group_instance_id=options["instance"]))
        return [error.name]

    def _do_commit(self, words: list[str], options: dict[str, str]) -> list[str]:
        client = self._client(words[0]) if words[0] != "nobody" else ScriptClient("nobody")
        output = []
        for topic, partition, offset in _offsets(words[1:]):
            (error,) = self._world.commit(
                {partition: offset}, client.member_id, client.generation, topic=topic, instance_id=client.instance_id
            )
            output.append(f"{client.name}: {topic}:{partition} {error.name}")
        return output

    def _do_begin(self, words: list[str], options: dict[str, str]) -> list[str]:
        output = []
        for topic, partition, offset in _offsets(words[1:]):
            (error,) = self._world.commit_in_transaction(int(words[0]), {partition: offset}, topic=topic)
            output.append(f"{topic}:{partition} {error.name}")
        return output

    def _do_end(self, words: list[str], options: dict[str, str]) -> list[str]:
        self._world.end_transaction(int(words[0]), words[1] == "commit")
        return []

    def _do_fetch(self, words: list[str], options: dict[str, str]) -> list[str]:
        output = []
        for word in words:
            if word == "stable":
                continue
            topic, number = word.split(":")
            (found,) = self._world.fetch([int(number)], topic=topic, require_stable="stable" in words)
            error = "" if not found.error_code else f" {ErrorCode(found.error_code).name}"
            output.append(f"{word} {found.committed_offset}{error}")
        return output

    def _do_tick(self, words: list[str], options: dict[str, str]) -> list[str]:
        self._world.advance(int(words[0]))
        return []

    def _do_state(self, words: list[str], options: dict[str, str]) -> list[str]:
        group = self._world.coordinator.groups.get(GROUP)
        if not isinstance(group, ClassicGroup):
            return ["Dead"]
        output = [f"{group.state_name} generation {group.generation_id}"]
        for member in group.members.values():
            leads = " leads" if group.leader_id == member.member_id else ""
            waits = " joins" if member.join_ticket else " syncs" if member.sync_ticket else ""
            output.append(f"  {member.member_id}{leads}{waits}")
        return output + [f"  {member_id} is expected" for member_id in sorted(group.pending_joins)]

    def _do_delete(self, words: list[str], options: dict[str, str]) -> list[str]:
        error, step = self._world.coordinator.delete_group(GROUP, self._world.now_ms)
        self._world.perform(step)
        return [*self._new_records(), error.name]

    def _do_restart(self, words: list[str], options: dict[str, str]) -> list[str]:
        self._world.restart()
        return []

    # What came out.

    def _new_answers(self) -> Iterator[str]:
        for ticket, answer in self._world.answers.items():
            if ticket in self._asked and ticket not in self._told:
                self._told.add(ticket)
                when = answer.at_ms - self._began_ms
                yield f"{self._asked[ticket].name}: {self._shown(self._asked[ticket], answer.message)}  @{when}"

    def _shown(self, client: ScriptClient, message: Any) -> str:
        if isinstance(message, SyncGroupResponse):
            return (
                ErrorCode(message.error_code).name if message.error_code else message.assignment.decode() or "nothing"
            )
        assert isinstance(message, JoinGroupResponse)
        client.member_id = message.member_id
        if message.error_code:
            return f"{ErrorCode(message.error_code).name} {message.member_id}".rstrip()
        client.generation = message.generation_id
        client.members = [member.member_id for member in message.members]
        shown = f"{message.member_id} generation {message.generation_id} {message.protocol_name}"
        shown += f", {message.leader} leads"
        if client.members:
            shown += f" {' '.join(client.members)}"
        return shown + (", no assignment needed" if message.skip_assignment else "")

    def _new_records(self) -> list[str]:
        entries = self._world.log[self._written :]
        self._written = len(self._world.log)
        return [_shown_entry(entry) for entry in entries]


def _offsets(words: list[str]) -> Iterator[tuple[str, int, int]]:
    for word in words:
        where, offset = word.split("=")
        topic, partition = where.split(":")
        yield topic, int(partition), int(offset)


def _shown_entry(entry: LogEntry) -> str:
    if entry.record is None:
        return f"log: {'commit' if entry.is_commit else 'abort'} of {entry.producer_id}"
    key, value = entry.record
    transaction = "" if entry.producer_id is None else f" by {entry.producer_id}"
    match key:
        case OffsetCommitKey():
            return f"log: {key.topic}:{key.partition} {'deleted' if value is None else value.offset}{transaction}"
        case GroupMetadataKey() if value is not None:
            members = " ".join(member.member_id for member in value.members) or "nobody"
            return f"log: generation {value.generation} {members}"
        case GroupMetadataKey():
            return "log: group deleted"
    return f"log: {type(key).__name__}"


def rewritten(text: str) -> str:
    """Return a script with what comes out of its commands now."""
    script = Script()
    output: list[str] = []
    block: list[str] = []
    lines = iter(text.splitlines())
    for line in lines:
        output.append(line)
        if line == DASHES:
            for command in block:
                output += script.run(command)
            block = []
            while next(lines, "") != "":
                pass
            output.append("")
        elif line and not line.startswith("#"):
            block.append(line)
    return "\n".join(output).rstrip("\n") + "\n"
