"""What all kinds of groups have in common, and what the parts of a shard see of it.

A shard is one partition of `__consumer_offsets`. It has classic groups and consumer groups (KIP-848) under one roof,
as both commit offsets, are listed and deleted in the same way, and can become one another while they run.

Rule 1: whoever asks a group whether something is allowed gets an ApiError raised if it is not.
Rule 2: a kind of group that is replaced by the other kind is replaced in `Shard.groups`; offsets stay as they are.
"""

from collections.abc import Callable
from typing import Literal, Protocol

from barnabas.coordination.step import CoordinatorRecord, Topics
from barnabas.coordination.timers import Timers
from barnabas.coordinator_config import GroupConfig

CONSUMER_PROTOCOL_TYPE = "consumer"
"""The protocol type of consumers, in classic groups as in consumer groups."""

PartitionCheck = Callable[[bytes, int], None]
"""Raises an ApiError if the offset of a partition, by topic id and number, may not be committed."""


class Group(Protocol):
    """A group, as offsets and operators see it."""

    @property
    def group_id(self) -> str:
        """Return the group's name."""
        ...

    @property
    def group_type(self) -> Literal["classic", "consumer"]:
        """Return which protocol the group speaks."""
        ...

    @property
    def protocol_type(self) -> str | None:
        """Return what the members are: consumers, workers of Connect; None if there never were members."""
        ...

    @property
    def state_name(self) -> str:
        """Return the state, as it is shown: `Stable`, `Empty`, `Reconciling`."""
        ...

    @property
    def is_empty(self) -> bool:
        """Whether there are no members."""
        ...

    def validate_offset_commit(
        self, member_id: str, instance_id: str | None, generation_or_epoch: int, version: int, is_transactional: bool
    ) -> PartitionCheck | None:
        """Raise an ApiError if a member may not commit offsets. `version` is the request's.

        What is returned is to be asked about each partition; None if the member may commit all of them.
        """
        ...

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Raise an ApiError if a member may not fetch offsets; with no member and epoch -1 it is an operator's."""
        ...

    def validate_offset_delete(self) -> None:
        """Raise an ApiError if no offset of the group may be deleted, whatever its topic."""
        ...

    def validate_delete(self) -> None:
        """Raise NON_EMPTY_GROUP, or what else hinders that the group is deleted."""
        ...

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member of the group reads a topic; its offsets are neither deleted nor do they expire."""
        ...

    @property
    def offsets_may_expire(self) -> bool:
        """Whether offsets of topics without subscription grow old now. Consumer groups: always."""
        ...

    @property
    def empty_since_ms(self) -> int | None:
        """When the group became empty, which the age of its offsets is counted from; None counts from each commit.

        Consumer groups: always None.
        """
        ...

    def tombstones(self) -> list[CoordinatorRecord]:
        """Return the records that delete the group itself; not those of its offsets."""
        ...


class Shard(Protocol):
    """The shard, as its parts see it."""

    @property
    def config(self) -> GroupConfig:
        """Return the settings of this moment."""
        ...

    @property
    def topics(self) -> Topics:
        """Return the topics of this moment."""
        ...

    @property
    def new_id(self) -> Callable[[], str]:
        """Return what makes a new uuid at each call."""
        ...

    @property
    def groups(self) -> dict[str, Group]:
        """Return all groups by their names; parts put groups in and take them out."""
        ...

    @property
    def timers(self) -> Timers:
        """Return the timers of all groups."""
        ...
