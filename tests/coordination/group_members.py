"""Words for tests of classic groups: members that join, sync and are in a generation."""

from dataclasses import dataclass

from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.groups import JoinGroupResponse, MemberIdentity
from tests.coordination.group_world import GROUP, World


@dataclass
class Member:
    """A client that remembers who it is."""

    world: World
    name: str
    member_id: str
    generation: int
    leader: str
    instance_id: str | None = None

    @property
    def is_leader(self) -> bool:
        return self.leader == self.member_id

    def send_join(self, **options: object) -> int:
        return self.world.send_join(self.name, self.member_id, instance_id=self.instance_id, **options)  # type: ignore[arg-type]

    def sync(self, assignments: dict[str, bytes] | None = None) -> int:
        return self.world.send_sync(self.member_id, self.generation, assignments, instance_id=self.instance_id)

    def heartbeat(self) -> ErrorCode:
        return self.world.heartbeat(self.member_id, self.generation, instance_id=self.instance_id)

    def leave(self) -> list[ErrorCode]:
        return self.world.leave(MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id))

    def commit(self, offsets: dict[int, int]) -> list[ErrorCode]:
        return self.world.commit(offsets, self.member_id, self.generation, instance_id=self.instance_id)


def member_of(world: World, name: str, response: JoinGroupResponse, instance_id: str | None = None) -> Member:
    """Return the member that got an answer to its join."""
    assert response.error_code == ErrorCode.NONE, ErrorCode(response.error_code)
    return Member(world, name, response.member_id, response.generation_id, response.leader, instance_id)


def required_id(world: World, name: str = "a", **options: object) -> str:
    """Ask to join without a name, and return the one that was given."""
    response = world.answer(world.send_join(name, **options))  # type: ignore[arg-type]
    assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
    member_id: str = response.member_id
    return member_id


def joined(world: World, *names: str, instances: tuple[str, ...] = (), **options: object) -> list[Member]:
    """Let members join an empty group, dynamic ones and static ones, and wait until the generation begins."""
    people = [(name, None) for name in names] + [(name, name) for name in instances]
    tickets = [
        world.send_join(name, "" if instance else required_id(world, name, **options), instance_id=instance, **options)  # type: ignore[arg-type]
        for name, instance in people
    ]
    world.advance(6_000)
    return [
        member_of(world, name, world.answer(ticket), instance)
        for (name, instance), ticket in zip(people, tickets, strict=True)
    ]


def stable(world: World, *names: str, instances: tuple[str, ...] = (), **options: object) -> list[Member]:
    """Let members join an empty group and get assignments, each its own name."""
    members = joined(world, *names, instances=instances, **options)
    leader = next(member for member in members if member.is_leader)
    tickets = [member.sync() for member in members if member is not leader]
    tickets.append(leader.sync({member.member_id: member.name.encode() for member in members}))
    assert all(world.answer(ticket).error_code == ErrorCode.NONE for ticket in tickets)
    assert world.group(GROUP).state_name == "Stable"
    return members
