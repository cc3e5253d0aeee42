"""How members come into consumer groups, go on in them, and are put out; the part that both protocols share.

    what a member says --> its metadata --> expressions --> group epoch --> target --> what it has

Each arrow is a record if something changed. The target of all members is computed by the first one that comes after
the group epoch went up; each member then comes to its own part of it by its own heartbeats.

Timers of a member (coordination/timers.py):

    consumer-session     no heartbeat for too long
    consumer-rebalance   it was asked to give partitions up, and has not
    consumer-join        a classic member was told to join again, and has not
    consumer-sync        a classic member joined, and has not asked for its assignment

Rule 1: what may be refused is checked before anything is changed; nothing here can be refused.
"""

from collections.abc import Iterable

from barnabas.coordination.assignors import ASSIGNORS, EMPTY, MemberSpec
from barnabas.coordination.consumer_group import (
    ConsumerGroup,
    ResolvedRegularExpression,
    described_topics,
    metadata_hash,
    topic_ids_of,
)
from barnabas.coordination.consumer_member import ConsumerGroupMember, MemberState, Reconciliation
from barnabas.coordination.consumer_migration import Migration
from barnabas.coordination.group import Shard
from barnabas.coordination.step import Step
from barnabas.coordination.timers import TimerKey
from barnabas.coordination.topic_patterns import matching_topics
from barnabas.wire.messages.consumer_groups import TopicPartitions

SESSION = "consumer-session"
REBALANCE = "consumer-rebalance"
JOIN = "consumer-join"
SYNC = "consumer-sync"
TIMER_KINDS = (SESSION, REBALANCE, JOIN, SYNC)


class Membership:
    """The members of the consumer groups of a shard."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self.migration = Migration(shard)

    def admit(
        self,
        group: ConsumerGroup,
        before: ConsumerGroupMember,
        member: ConsumerGroupMember,
        owned: Iterable[TopicPartitions] | None,
        now_ms: int,
        step: Step,
    ) -> ConsumerGroupMember:
        """Take in what a member says of itself, and bring it one step nearer to its target.

        `before` is how the group knew it; a new member was unknown, and had no subscription.
        """
        has_names_changed = member.metadata.subscribed_topic_names != before.metadata.subscribed_topic_names
        has_regex_changed = (member.metadata.subscribed_topic_regex or "") != (
            before.metadata.subscribed_topic_regex or ""
        )
        if member.member_id not in group.members or member.metadata != before.metadata:
            step.records.append(group.put_member(member))
        has_matches_changed = self._resolve_regexes(group, has_regex_changed, now_ms, step)
        self._update_epoch(
            group, has_names_changed or has_regex_changed or has_matches_changed or group.group_epoch == 0, step
        )
        if group.group_epoch > group.assignment_epoch:
            self._update_targets(group, now_ms, step)
        return self._reconcile(group, member, owned, has_names_changed or has_regex_changed, now_ms, step)

    def _resolve_regexes(self, group: ConsumerGroup, has_changed: bool, now_ms: int, step: Step) -> bool:
        """Compare expressions with the topics there are, and return whether one matches others than before.

        Kafka does that in the background, and at most every ten seconds, as it asks an authorizer for every topic.
        """
        if not has_changed and not group.regexes:
            return False
        refresh_ms = group.regexes_refreshed_ms + self._shard.config.consumer_regex_refresh_interval_ms
        if not (has_changed or group.are_regexes_stale or now_ms >= refresh_ms):
            return False
        used = group.used_regexes()
        step.records += [group.drop_regex(regex) for regex in sorted(group.regexes.keys() - used)]
        has_matches_changed = False
        for regex in sorted(used):
            topics = matching_topics(regex, self._shard.topics.names())
            known = group.regexes.get(regex)
            if known is None or known.topics != topics:
                step.records.append(group.put_regex(regex, ResolvedRegularExpression(topics, now_ms)))
                has_matches_changed = True
        group.are_regexes_stale = False
        group.regexes_refreshed_ms = now_ms
        return has_matches_changed

    def _update_epoch(self, group: ConsumerGroup, must_bump: bool, step: Step) -> None:
        if not must_bump and not group.is_metadata_stale:
            return
        current_hash = metadata_hash(described_topics(self._shard.topics, group.subscribed_topic_names))
        group.is_metadata_stale = False
        if must_bump or current_hash != group.metadata_hash:
            step.records.append(group.put_epoch(group.group_epoch + 1, current_hash))

    def _update_targets(self, group: ConsumerGroup, now_ms: int, step: Step) -> None:
        topics = described_topics(self._shard.topics, group.subscribed_topic_names)
        partition_counts = {topic.topic_id: topic.partition_count for topic in topics}
        ids: dict[frozenset[str], frozenset[bytes]] = {}
        specs = {
            member_id: MemberSpec(
                member.metadata.instance_id,
                topic_ids_of(self._shard.topics, group.subscription_of(member.metadata), ids),
                group.targets.get(member_id, EMPTY),
            )
            for member_id, member in group.members.items()
        }
        targets = ASSIGNORS[self.assignor_of(group)](specs, partition_counts)
        for member_id, target in targets.items():
            if member_id not in group.targets or target is not specs[member_id].target:
                step.records.append(group.put_target(member_id, target))
        step.records.append(group.put_assignment_epoch(group.group_epoch, now_ms))

    def assignor_of(self, group: ConsumerGroup) -> str:
        """Return the assignor that most members ask for; without any, and of equals, the first of the settings."""
        configured = self._shard.config.consumer_assignors
        votes = dict.fromkeys(configured, 0)
        for member in group.members.values():
            name = member.metadata.server_assignor
            if name in votes:
                votes[name] += 1
        return max(configured, key=lambda name: votes[name])

    def _reconcile(
        self,
        group: ConsumerGroup,
        member: ConsumerGroupMember,
        owned: Iterable[TopicPartitions] | None,
        has_subscription_changed: bool,
        now_ms: int,
        step: Step,
    ) -> ConsumerGroupMember:
        if not has_subscription_changed and member.is_reconciled_to(group.assignment_epoch):
            return member
        reconciled = Reconciliation(
            member,
            assignment_epoch=group.assignment_epoch,
            target=group.targets.get(member.member_id, EMPTY),
            subscribed_topic_ids=topic_ids_of(self._shard.topics, group.subscription_of(member.metadata), {}),
            owners=group.owners,
            owned=owned,
        ).next(has_subscription_changed)
        if reconciled == member:
            return member
        step.records.append(group.put_current(reconciled))
        if not reconciled.uses_classic_protocol:
            # Classic members have their own deadlines, for joining again and for asking.
            key = TimerKey(REBALANCE, group.group_id, member.member_id)
            if reconciled.state is MemberState.UNREVOKED_PARTITIONS:
                self._shard.timers.set(key, now_ms + reconciled.metadata.rebalance_timeout_ms)
            else:
                self._shard.timers.cancel(key)
        return reconciled

    def fence(self, group: ConsumerGroup, member_ids: Iterable[str], now_ms: int) -> Step:
        """Put members out; if only classic members remain, the group becomes a classic one."""
        fenced = list(dict.fromkeys(member_ids))
        if not fenced:
            return Step()
        if self.migration.can_downgrade(group, fenced):
            self.cancel_timers(group)
            return self.migration.downgrade(group, fenced, True, now_ms)
        step = Step()
        for member_id in fenced:
            step.records += group.drop_member(member_id)
            self.cancel_timers_of(group.group_id, member_id)
        used = group.used_regexes()
        step.records += [group.drop_regex(regex) for regex in sorted(group.regexes.keys() - used)]
        self._update_epoch(group, True, step)
        return step

    # Timers.

    def restart_session(self, group: ConsumerGroup, member: ConsumerGroupMember, now_ms: int) -> None:
        """Count the session of a member from now."""
        classic = member.metadata.classic_member_metadata
        timeout_ms = self._shard.config.consumer_session_timeout_ms if classic is None else classic.session_timeout_ms
        self._shard.timers.set(TimerKey(SESSION, group.group_id, member.member_id), now_ms + timeout_ms)

    def cancel_timers_of(self, group_id: str, member_id: str) -> None:
        """Forget the deadlines of a member."""
        for kind in TIMER_KINDS:
            self._shard.timers.cancel(TimerKey(kind, group_id, member_id))

    def cancel_timers(self, group: ConsumerGroup) -> None:
        """Forget the deadlines of all members."""
        for member_id in group.members:
            self.cancel_timers_of(group.group_id, member_id)
