"""The committed offsets of a shard's groups, and those that wait for the end of their transaction.

    offsets    group -> topic -> partition -> offset            what consumers fetch
    pending    producer -> group -> topic -> partition -> ...   written, but the marker decides

Rule 1: of two commits for one partition the one counts that was written later, also if it became visible earlier: a
transaction that commits does not replace what was committed after its offset was written. So every offset carries a
number that tells the order in which they were written.
Rule 2: a tombstone deletes what is visible and what is pending.
Rule 3: deleting and expiring bring tombstones; whoever calls these methods appends what they return.
"""

from collections.abc import Collection, Iterator

from barnabas.coordination.group import Group
from barnabas.coordination.group_records import OffsetCommitKey, OffsetCommitValue
from barnabas.coordination.step import CoordinatorRecord
from barnabas.wire.schema import ZERO_UUID

GroupTable = dict[str, dict[int, tuple[int, OffsetCommitValue]]]
"""The offsets of one group by topic and partition, each after its number."""


class GroupOffsets:
    """The offsets of all groups of a shard."""

    def __init__(self) -> None:
        self._offsets: dict[str, GroupTable] = {}
        self._pending: dict[int, dict[str, GroupTable]] = {}
        # Invariant: it holds each producer that _pending has for a group, and no others.
        self._producers: dict[str, set[int]] = {}
        self._written = 0

    # Reading.

    def get(self, group_id: str, topic: str, partition: int) -> OffsetCommitValue | None:
        """Return a committed offset."""
        numbered = self._offsets.get(group_id, {}).get(topic, {}).get(partition)
        return None if numbered is None else numbered[1]

    def get_of_topic(self, group_id: str, topic: str, topic_id: bytes, partition: int) -> OffsetCommitValue | None:
        """Return a committed offset, but not one of an earlier topic of the same name."""
        value = self.get(group_id, topic, partition)
        if value is None or ZERO_UUID in (value.topic_id, topic_id) or value.topic_id == topic_id:
            return value
        return None

    def partitions_of(self, group_id: str) -> Iterator[tuple[str, list[int]]]:
        """Return the topics and partitions that a group has committed offsets of."""
        for topic, partitions in self._offsets.get(group_id, {}).items():
            yield topic, list(partitions)

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether a transaction that is not over has an offset for a partition."""
        return any(
            partition in self._pending[producer_id][group_id].get(topic, {})
            for producer_id in self._producers.get(group_id, ())
        )

    def has_any(self, group_id: str) -> bool:
        """Whether a group has offsets, or a transaction under way that may bring some."""
        return group_id in self._offsets or group_id in self._producers

    def group_ids(self) -> set[str]:
        """Return the groups that have offsets, visible or pending."""
        return {*self._offsets, *self._producers}

    # Committing.

    def put(self, group_id: str, topic: str, partition: int, value: OffsetCommitValue) -> None:
        """Commit an offset."""
        self._written += 1
        table = self._offsets.get(group_id)
        if table is None:
            table = self._offsets[group_id] = {}
        partitions = table.get(topic)
        if partitions is None:
            partitions = table[topic] = {}
        partitions[partition] = (self._written, value)

    def put_pending(
        self, producer_id: int, group_id: str, topic: str, partition: int, value: OffsetCommitValue
    ) -> None:
        """Keep an offset until its transaction is over."""
        self._written += 1
        self._producers.setdefault(group_id, set()).add(producer_id)
        table = self._pending.setdefault(producer_id, {}).setdefault(group_id, {})
        table.setdefault(topic, {})[partition] = (self._written, value)

    def complete_transaction(self, producer_id: int, is_commit: bool) -> None:
        """Make the offsets of a transaction visible, or forget them."""
        for group_id, table in self._pending.pop(producer_id, {}).items():
            self._forget_producer(group_id, producer_id)
            if not is_commit:
                continue
            for topic, partitions in table.items():
                for partition, numbered in partitions.items():
                    visible = self._offsets.setdefault(group_id, {}).setdefault(topic, {})
                    existing = visible.get(partition)
                    if existing is None or existing[0] < numbered[0]:
                        visible[partition] = numbered

    # Deleting.

    def remove(self, group_id: str, topic: str, partition: int) -> CoordinatorRecord | None:
        """Delete an offset with those that are pending; None if there is nothing to delete."""
        was_found = False
        for table in self._tables_of(group_id):
            # A transaction stays known to the group until it is over, so its table stays too, if empty.
            was_found |= table.get(topic, {}).pop(partition, None) is not None
        visible = self._offsets.get(group_id, {})
        if topic in visible and not visible[topic]:
            del visible[topic]
            if not visible:
                del self._offsets[group_id]
        return _tombstone(group_id, topic, partition) if was_found else None

    def remove_group(self, group_id: str) -> list[CoordinatorRecord]:
        """Delete everything that a group has."""
        found = {
            (topic, partition): None
            for table in self._tables_of(group_id)
            for topic, partitions in table.items()
            for partition in partitions
        }
        self._offsets.pop(group_id, None)
        for producer_id in self._producers.pop(group_id, set()):
            del self._pending[producer_id][group_id]
        return [_tombstone(group_id, topic, partition) for topic, partition in found]

    def remove_topics(self, names: Collection[str]) -> list[CoordinatorRecord]:
        """Delete the offsets of topics that are no more, of all groups."""
        records = []
        for group_id in self.group_ids():
            found = {
                (topic, partition): None
                for table in self._tables_of(group_id)
                for topic in names
                for partition in table.get(topic, ())
            }
            for topic, partition in found:
                self.remove(group_id, topic, partition)
                records.append(_tombstone(group_id, topic, partition))
        return records

    def expire(self, group: Group, retention_ms: int, now_ms: int) -> list[CoordinatorRecord]:
        """Delete the offsets of a group that are too old (KIP-211)."""
        if not group.offsets_may_expire:
            return []
        group_id = group.group_id
        since_ms = group.empty_since_ms
        expired = [
            (topic, partition)
            for topic, partitions in self._offsets.get(group_id, {}).items()
            if not group.is_subscribed_to(topic)
            for partition, (_, value) in partitions.items()
            if _is_over(value, since_ms, retention_ms, now_ms) and not self.is_pending(group_id, topic, partition)
        ]
        for topic, partition in expired:
            self.remove(group_id, topic, partition)
        return [_tombstone(group_id, topic, partition) for topic, partition in expired]

    # Loading.

    def replay(self, record: CoordinatorRecord) -> None:
        """Take in a record of the log; in the log's order where transactions are between."""
        key = record.key
        if record.value is None:
            self.remove(key.group, key.topic, key.partition)
        else:
            self.put(key.group, key.topic, key.partition, record.value)

    def replay_transactional(self, producer_id: int, record: CoordinatorRecord) -> None:
        """Take in a record that a transaction wrote."""
        key = record.key
        if record.value is None:
            self.remove(key.group, key.topic, key.partition)
        else:
            self.put_pending(producer_id, key.group, key.topic, key.partition, record.value)

    def _tables_of(self, group_id: str) -> Iterator[GroupTable]:
        if group_id in self._offsets:
            yield self._offsets[group_id]
        for producer_id in self._producers.get(group_id, ()):
            yield self._pending[producer_id][group_id]

    def _forget_producer(self, group_id: str, producer_id: int) -> None:
        self._producers[group_id].discard(producer_id)
        if not self._producers[group_id]:
            del self._producers[group_id]


def _tombstone(group_id: str, topic: str, partition: int) -> CoordinatorRecord:
    return CoordinatorRecord(OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)


def _is_over(value: OffsetCommitValue, since_ms: int | None, retention_ms: int, now_ms: int) -> bool:
    if value.expire_timestamp != -1:
        return now_ms >= value.expire_timestamp  # The client said itself how long, as it could until version 4.
    return now_ms - (value.commit_timestamp if since_ms is None else since_ms) >= retention_ms
