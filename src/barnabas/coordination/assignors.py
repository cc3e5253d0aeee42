"""The assignors of consumer groups: which member shall have which partitions.

    members: what each subscribes to, and what its target was before  +  how many partitions each topic has
        --> the new target of every member

`uniform` gives every member the same number of partitions, or one more, and moves as few as that allows. `range` gives
each member the same numbers of all topics, so that topics that are partitioned alike can be joined.

Rule 1: pure functions. The same members and topics give the same target, in whatever order they come.
Rule 2: every partition of a topic that somebody subscribes to gets exactly one owner, who subscribes to the topic.
Rule 3: a member whose target does not change gets the very same object back, so that changes are cheap to find.

What differs from Kafka's UniformAssignor: with equal subscriptions, the members that have one partition more keep it,
wherever they are in the order. Kafka gives the surplus to the first members, which may move partitions for nothing.
"""

from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heappush, heapreplace
from typing import NamedTuple, TypeAlias

Partitions: TypeAlias = Mapping[bytes, frozenset[int]]
"""Partitions by the id of their topic. No topic is there without partitions."""

EMPTY: Partitions = {}

BALANCING_ROUNDS_MAX = 16
"""After so many rounds over all topics the heterogeneous assignor leaves it at what it has; Kafka's number."""


class MemberSpec(NamedTuple):
    """A member, as assignors see it."""

    instance_id: str | None
    topic_ids: frozenset[bytes]
    """The topics that it subscribes to and that exist."""
    target: Partitions
    """What it was to have before."""


Assignor: TypeAlias = Callable[[Mapping[str, MemberSpec], Mapping[bytes, int]], dict[str, Partitions]]


def assign_range(members: Mapping[str, MemberSpec], partition_counts: Mapping[bytes, int]) -> dict[str, Partitions]:
    """Give each member one range of every topic it subscribes to, the ranges in the order of the members.

    Static members come first, by their instance id: then one that is restarted has the range that it had before.
    """
    order = sorted(members, key=lambda member_id: _range_order(member_id, members[member_id]))
    subscribers: dict[bytes, list[str]] = {}
    for member_id in order:
        for topic_id in members[member_id].topic_ids:
            subscribers.setdefault(topic_id, []).append(member_id)
    ranges: dict[str, dict[bytes, frozenset[int]]] = {member_id: {} for member_id in members}
    for topic_id, member_ids in subscribers.items():
        quota, surplus = divmod(partition_counts[topic_id], len(member_ids))
        start = 0
        for index, member_id in enumerate(member_ids):
            end = start + quota + (index < surplus)
            if start == end:
                break  # There are fewer partitions than members.
            ranges[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return {member_id: _kept_if_equal(members[member_id].target, new) for member_id, new in ranges.items()}


def _range_order(member_id: str, member: MemberSpec) -> tuple[bool, str]:
    if member.instance_id is not None:
        return False, member.instance_id
    return True, member_id


def assign_uniform(members: Mapping[str, MemberSpec], partition_counts: Mapping[bytes, int]) -> dict[str, Partitions]:
    """Balance the number of partitions, and move as few as possible."""
    subscriptions = {member.topic_ids for member in members.values()}
    if len(subscriptions) == 1:
        return _assign_homogeneous(members, subscriptions.pop(), partition_counts)
    return _Heterogeneous(members, partition_counts).assign()


def _assign_homogeneous(
    members: Mapping[str, MemberSpec], topic_ids: frozenset[bytes], partition_counts: Mapping[bytes, int]
) -> dict[str, Partitions]:
    """Assign when all members have the same subscription: then the balance can be perfect."""
    free = {topic_id: set(range(partition_counts[topic_id])) for topic_id in sorted(topic_ids)}
    kept = {member_id: _claim(members[member_id], free) for member_id in sorted(members)}
    quotas = _quotas(
        {member_id: _size(partitions) for member_id, partitions in kept.items()},
        sum(partition_counts[topic_id] for topic_id in topic_ids),
    )
    for member_id, partitions in kept.items():
        surplus = _size(partitions) - quotas[member_id]
        if surplus > 0:
            _give_back(partitions, surplus, free)
    unassigned = iter([(topic_id, partition) for topic_id, left in free.items() for partition in sorted(left)])
    for member_id, partitions in kept.items():
        for _ in range(quotas[member_id] - _size(partitions)):
            topic_id, partition = next(unassigned)
            partitions.setdefault(topic_id, set()).add(partition)
    assert next(unassigned, None) is None, "quotas add up to the number of partitions"
    return {member_id: _frozen(members[member_id].target, partitions) for member_id, partitions in kept.items()}


def _claim(member: MemberSpec, free: dict[bytes, set[int]]) -> dict[bytes, set[int]]:
    """Take what a member had, as far as it is still free: topics go, and a classic leader may have erred."""
    kept = {}
    for topic_id, partitions in member.target.items():
        if topic_id in member.topic_ids and topic_id in free:
            still_free = free[topic_id]
            claimed = partitions & still_free
            if claimed:
                still_free -= claimed
                kept[topic_id] = set(claimed)
    return kept


def _quotas(sizes: Mapping[str, int], partition_count: int) -> dict[str, int]:
    """Return how many partitions each member gets; who has more than the others already is the first to get one more.

    For example 7 partitions of 3 members, who have 3, 4 and 0: the quota is 2, and one of the first two keeps 3.
    """
    quota, surplus = divmod(partition_count, len(sizes))
    favoured = sorted(sizes, key=lambda member_id: (sizes[member_id] <= quota, member_id))[:surplus]
    quotas = dict.fromkeys(sizes, quota)
    for member_id in favoured:
        quotas[member_id] += 1
    return quotas


def _give_back(partitions: dict[bytes, set[int]], count: int, free: dict[bytes, set[int]]) -> None:
    """Take the last of a member's partitions away."""
    owned = sorted((topic_id, partition) for topic_id, numbers in partitions.items() for partition in numbers)
    for topic_id, partition in owned[-count:]:
        partitions[topic_id].discard(partition)
        if not partitions[topic_id]:
            del partitions[topic_id]
        free[topic_id].add(partition)


def _size(partitions: Mapping[bytes, set[int]]) -> int:
    return sum(map(len, partitions.values()))


def _frozen(before: Partitions, partitions: Mapping[bytes, set[int]]) -> Partitions:
    return _kept_if_equal(before, {topic_id: frozenset(numbers) for topic_id, numbers in partitions.items()})


def _kept_if_equal(before: Partitions, after: Partitions) -> Partitions:
    return before if before == after else after


class _Heterogeneous:
    """The uniform assignor when subscriptions differ; as Kafka's UniformHeterogeneousAssignmentBuilder.

    It keeps what members have and may keep, hands out the rest topic by topic to whoever has least, and then moves
    partitions, again topic by topic, from the most to the least loaded subscriber until no topic can be improved.
    """

    def __init__(self, members: Mapping[str, MemberSpec], partition_counts: Mapping[bytes, int]) -> None:
        self._members = members
        self._subscribers: dict[bytes, list[str]] = {}
        for member_id in sorted(members):
            for topic_id in members[member_id].topic_ids:
                self._subscribers.setdefault(topic_id, []).append(member_id)
        # Topics with many partitions a subscriber come first: the others can even out what they leave uneven.
        self._topic_ids = sorted(
            self._subscribers,
            key=lambda topic_id: (
                -partition_counts[topic_id] / len(self._subscribers[topic_id]),
                len(self._subscribers[topic_id]),
                topic_id,
            ),
        )
        self._free = {topic_id: set(range(partition_counts[topic_id])) for topic_id in self._topic_ids}
        self._owned: dict[str, dict[bytes, set[int]]] = {}
        self._sizes: dict[str, int] = {}

    def assign(self) -> dict[str, Partitions]:
        for member_id in sorted(self._members):
            self._owned[member_id] = _claim(self._members[member_id], self._free)
            self._sizes[member_id] = _size(self._owned[member_id])
        for topic_id in self._topic_ids:
            self._hand_out(topic_id)
        for _ in range(BALANCING_ROUNDS_MAX):
            moved = sum(self._balance(topic_id) for topic_id in self._topic_ids)
            if moved == 0:
                break
        return {
            member_id: _frozen(self._members[member_id].target, partitions)
            for member_id, partitions in self._owned.items()
        }

    def _hand_out(self, topic_id: bytes) -> None:
        free = sorted(self._free[topic_id])
        if not free:
            return
        least = [(self._sizes[member_id], member_id) for member_id in self._subscribers[topic_id]]
        heapify(least)
        for partition in free:
            size, member_id = least[0]
            self._owned[member_id].setdefault(topic_id, set()).add(partition)
            self._sizes[member_id] = size + 1
            heapreplace(least, (size + 1, member_id))

    def _balance(self, topic_id: bytes) -> int:
        """Move partitions of a topic to less loaded subscribers, and return how many."""
        subscribers = self._subscribers[topic_id]
        sizes = self._sizes
        loads = [sizes[member_id] for member_id in subscribers]
        if max(loads) - min(loads) <= 1:
            return 0
        least = [(size, member_id) for size, member_id in zip(loads, subscribers, strict=True)]
        most = [(-sizes[member_id], member_id) for member_id in subscribers if topic_id in self._owned[member_id]]
        heapify(least)
        heapify(most)
        moved = 0
        while most:
            size_most, giver = -most[0][0], most[0][1]
            size_least, taker = least[0]
            if size_most - size_least <= 1:
                break
            heappop(most)
            assert size_most == sizes[giver], "a taker does not become a giver"
            self._move(topic_id, giver, taker)
            moved += 1
            heapreplace(least, (size_least + 1, taker))
            if topic_id in self._owned[giver]:
                heappush(most, (-sizes[giver], giver))
            # Nobody is both: a giver has at least as many as any taker after the move. So it does no harm that `least`
            # has the loads that givers had before, and `most` those of takers.
        return moved

    def _move(self, topic_id: bytes, giver: str, taker: str) -> None:
        numbers = self._owned[giver][topic_id]
        partition = max(numbers)
        numbers.discard(partition)
        if not numbers:
            del self._owned[giver][topic_id]
        self._owned[taker].setdefault(topic_id, set()).add(partition)
        self._sizes[giver] -= 1
        self._sizes[taker] += 1


ASSIGNORS: Mapping[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
"""The assignors by the names that clients and settings know them by."""
