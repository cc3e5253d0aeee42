"""Offsets: visible, pending, deleted, expired; and against a model of what the log says."""

from hypothesis import given
from hypothesis import strategies as st

from barnabas.coordination.classic_group import ClassicGroup, ClassicState
from barnabas.coordination.group_offsets import GroupOffsets
from barnabas.coordination.group_records import OffsetCommitKey, OffsetCommitValue
from barnabas.coordination.step import CoordinatorRecord


def at(offset: int, commit_ms: int = 0, expire_ms: int = -1) -> OffsetCommitValue:
    return OffsetCommitValue(offset=offset, commit_timestamp=commit_ms, expire_timestamp=expire_ms)


def seen(offsets: GroupOffsets, partition: int = 0) -> int | None:
    value = offsets.get("g", "news", partition)
    return None if value is None else value.offset


def test_an_offset_is_seen_when_it_is_put() -> None:
    offsets = GroupOffsets()
    assert seen(offsets) is None
    offsets.put("g", "news", 0, at(5))
    assert seen(offsets) == 5
    assert list(offsets.partitions_of("g")) == [("news", [0])]


def test_a_pending_offset_is_seen_after_the_commit_only() -> None:
    offsets = GroupOffsets()
    offsets.put_pending(1, "g", "news", 0, at(5))
    assert seen(offsets) is None
    assert offsets.is_pending("g", "news", 0)
    assert not offsets.is_pending("g", "news", 1)
    offsets.complete_transaction(1, is_commit=True)
    assert seen(offsets) == 5
    assert not offsets.is_pending("g", "news", 0)


def test_an_aborted_offset_is_never_seen() -> None:
    offsets = GroupOffsets()
    offsets.put_pending(1, "g", "news", 0, at(5))
    offsets.complete_transaction(1, is_commit=False)
    offsets.complete_transaction(1, is_commit=True)
    assert seen(offsets) is None
    assert not offsets.has_any("g")


def test_a_commit_after_the_pending_one_stays() -> None:
    offsets = GroupOffsets()
    offsets.put_pending(1, "g", "news", 0, at(5))
    offsets.put("g", "news", 0, at(9))
    offsets.complete_transaction(1, is_commit=True)
    assert seen(offsets) == 9


def test_of_two_transactions_the_one_counts_that_wrote_last() -> None:
    offsets = GroupOffsets()
    offsets.put_pending(1, "g", "news", 0, at(5))
    offsets.put_pending(2, "g", "news", 0, at(7))
    offsets.complete_transaction(2, is_commit=True)
    offsets.complete_transaction(1, is_commit=True)
    assert seen(offsets) == 7


def test_removing_takes_pending_offsets_along() -> None:
    offsets = GroupOffsets()
    offsets.put_pending(1, "g", "news", 0, at(5))
    tombstone = offsets.remove("g", "news", 0)
    assert tombstone == CoordinatorRecord(OffsetCommitKey(group="g", topic="news", partition=0), None)
    assert offsets.remove("g", "news", 0) is None
    assert offsets.has_any("g"), "its transaction is still open"
    offsets.complete_transaction(1, is_commit=True)
    assert seen(offsets) is None
    assert not offsets.has_any("g")


def test_a_removed_group_has_nothing_left() -> None:
    offsets = GroupOffsets()
    offsets.put("g", "news", 0, at(5))
    offsets.put_pending(1, "g", "news", 0, at(6))
    offsets.put_pending(1, "g", "news", 1, at(7))
    offsets.put_pending(1, "other", "news", 0, at(8))
    assert [record.key.partition for record in offsets.remove_group("g")] == [0, 1]
    offsets.complete_transaction(1, is_commit=True)
    assert not offsets.has_any("g")
    assert offsets.get("other", "news", 0) == at(8)


def test_offsets_of_deleted_topics_go_from_all_groups() -> None:
    offsets = GroupOffsets()
    for group in ("g", "h"):
        offsets.put(group, "news", 0, at(5))
        offsets.put(group, "sports", 0, at(6))
    offsets.put_pending(1, "h", "news", 1, at(7))
    records = offsets.remove_topics(["news"])
    assert sorted((record.key.group, record.key.partition) for record in records) == [("g", 0), ("h", 0), ("h", 1)]
    assert offsets.get("g", "sports", 0) == at(6)
    assert not offsets.is_pending("h", "news", 1)


def test_an_offset_of_an_earlier_topic_of_the_same_name_is_not_given() -> None:
    offsets = GroupOffsets()
    one, two, unknown = b"1" * 16, b"2" * 16, bytes(16)
    offsets.put("g", "news", 0, OffsetCommitValue(offset=5, topic_id=one))
    offsets.put("g", "news", 1, OffsetCommitValue(offset=6))
    assert offsets.get_of_topic("g", "news", one, 0) is not None
    assert offsets.get_of_topic("g", "news", two, 0) is None
    assert offsets.get_of_topic("g", "news", unknown, 0) is not None
    assert offsets.get_of_topic("g", "news", two, 1) is not None


def expired(offsets: GroupOffsets, group: ClassicGroup, now_ms: int) -> list[tuple[str, int]]:
    return [(record.key.topic, record.key.partition) for record in offsets.expire(group, 100, now_ms)]


def test_offsets_of_a_lone_consumer_expire_after_their_commit() -> None:
    offsets = GroupOffsets()
    offsets.put("g", "news", 0, at(5, commit_ms=10))
    offsets.put("g", "news", 1, at(5, commit_ms=50))
    group = ClassicGroup("g", 0)
    assert expired(offsets, group, 109) == []
    assert expired(offsets, group, 110) == [("news", 0)]
    assert list(offsets.partitions_of("g")) == [("news", [1])]


def test_offsets_of_a_group_expire_after_it_became_empty() -> None:
    offsets = GroupOffsets()
    offsets.put("g", "news", 0, at(5, commit_ms=10))
    group = ClassicGroup("g", 0)
    group.protocol_type = "consumer"
    group.start_generation(50)
    assert expired(offsets, group, 149) == []
    assert expired(offsets, group, 150) == [("news", 0)]


def test_offsets_expire_when_the_client_said() -> None:
    offsets = GroupOffsets()
    offsets.put("g", "news", 0, at(5, commit_ms=10, expire_ms=20))
    assert expired(offsets, ClassicGroup("g", 0), 19) == []
    assert expired(offsets, ClassicGroup("g", 0), 20) == [("news", 0)]


def test_offsets_that_are_read_or_pending_do_not_expire() -> None:
    offsets = GroupOffsets()
    for topic in ("news", "sports", "weather"):
        offsets.put("g", topic, 0, at(5, commit_ms=10))
    offsets.put_pending(1, "g", "weather", 0, at(6))
    group = ClassicGroup("g", 0)
    group.protocol_type = "consumer"
    group.subscribed_topics = {"news"}
    group.state = ClassicState.STABLE
    assert expired(offsets, group, 1_000) == [("sports", 0)]
    group.state = ClassicState.PREPARING_REBALANCE
    assert expired(offsets, group, 1_000) == []


Steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.just(0), st.integers(0, 1)),
        st.tuples(st.just("pending"), st.integers(1, 3), st.integers(0, 1)),
        st.tuples(st.just("remove"), st.just(0), st.integers(0, 1)),
        st.tuples(st.just("commit"), st.integers(1, 3), st.just(0)),
        st.tuples(st.just("abort"), st.integers(1, 3), st.just(0)),
    ),
    max_size=40,
)


def model_of(steps: list[tuple[str, int, int]], partition: int) -> int | None:
    """The offset that counts: the last that was written, of those that were not aborted, open or removed."""
    found = None
    for position, (kind, producer, where) in enumerate(steps):
        if kind == "remove" and where == partition:
            found = None
        elif kind == "put" and where == partition:
            found = position
        elif kind == "pending" and where == partition:
            ends = [step[0] for step in steps[position:] if step[0] in ("commit", "abort") and step[1] == producer]
            if ends[:1] == ["commit"]:
                found = position
    return found


@given(Steps)
def test_what_is_seen_is_what_was_written_last(steps: list[tuple[str, int, int]]) -> None:
    offsets = GroupOffsets()
    for position, (kind, producer, partition) in enumerate(steps):
        match kind:
            case "put":
                offsets.put("g", "news", partition, at(position))
            case "pending":
                offsets.put_pending(producer, "g", "news", partition, at(position))
            case "remove":
                offsets.remove("g", "news", partition)
            case _:
                offsets.complete_transaction(producer, kind == "commit")
    for producer in (1, 2, 3):
        offsets.complete_transaction(producer, is_commit=False)
    assert [seen(offsets, partition) for partition in (0, 1)] == [model_of(steps, 0), model_of(steps, 1)]
    assert offsets.has_any("g") == any(seen(offsets, partition) is not None for partition in (0, 1))
