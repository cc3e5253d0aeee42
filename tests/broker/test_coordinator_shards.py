"""Shards: they come back after a restart, take back what could not be kept, and reply when it is safe."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.broker import coordinator_shards
from barnabas.broker.coordinator_shards import RELOAD_MS
from barnabas.broker.internal_topics import GROUP_TOPIC, TRANSACTION_TOPIC
from barnabas.broker.partition import Partition
from barnabas.broker.transaction_markers import EndMarker
from barnabas.clock import ManualClock
from barnabas.coordination.step import CoordinatorRecord, Step
from barnabas.coordination.transaction import TransactionMetadata
from barnabas.embedded import Broker
from barnabas.model import TopicPartition
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.group_admin import DescribeGroupsRequest, ListGroupsRequest
from barnabas.wire.messages.groups import HeartbeatRequest
from barnabas.wire.messages.topics import DeleteTopicsRequest, DeleteTopicState
from tests.broker.asking import connected, create_topic, fetch, incremental, topic_changes
from tests.broker.coordinating import (
    TRANSACTION,
    Member,
    commit,
    commit_in,
    committed,
    end,
    find,
    init,
    join,
    join_alone,
    produce_in,
)
from tests.broker.turning import on_loop, until, until_on_loop

FAST = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "4"}


def heartbeat(connection: object, group: str, member: Member) -> int:
    request = HeartbeatRequest(group_id=group, generation_id=member.generation_id, member_id=member.member_id)
    return int(connection.request(request).error_code)  # type: ignore[attr-defined]


def loaded(broker: Broker) -> Callable[[], bool]:
    """Whether every shard of the groups has read its log."""
    return lambda: not broker.server.services.groups.shards.is_loading


def test_groups_and_offsets_are_there_after_a_restart(tmp_path: Path) -> None:
    with Broker(in_process=True, data=tmp_path, settings=FAST) as broker, connected(broker) as connection:
        create_topic(connection, "t", 2)
        find(connection, "g")
        member = join_alone(connection, "g")
        assert commit(connection, "g", {("t", 0): 5, ("t", 1): 6}, member) == [0, 0]
        assert commit(connection, "lone", {("t", 0): 1}) == [0]
    with Broker(in_process=True, data=tmp_path, settings=FAST) as broker, connected(broker) as connection:
        until_on_loop(broker, loaded(broker))
        assert heartbeat(connection, "g", member) == ErrorCode.NONE
        assert committed(connection, "g", "t", 1) == (6, 0)
        assert committed(connection, "lone", "t") == (1, 0)
        assert sorted(one.group_id for one in connection.request(ListGroupsRequest()).groups) == ["g", "lone"]


def test_many_records_are_taken_in_over_several_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = [f"g{number}" for number in range(60)]
    with Broker(in_process=True, data=tmp_path, settings=FAST) as broker, connected(broker) as connection:
        create_topic(connection, "t")
        find(connection, "g")
        for number, group in enumerate(groups):
            assert commit(connection, group, {("t", 0): number}) == [0]
    monkeypatch.setattr(coordinator_shards, "RECORDS_A_TURN", 2)
    with Broker(in_process=True, data=tmp_path, settings=FAST) as broker, connected(broker) as connection:
        until_on_loop(broker, loaded(broker))
        assert [committed(connection, group, "t")[0] for group in groups] == list(range(60))


def test_a_marker_that_comes_while_records_are_taken_in_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**FAST, "offsets.topic.num.partitions": "1"}
    with Broker(in_process=True, data=tmp_path, settings=settings) as broker, connected(broker) as connection:
        create_topic(connection, "t")
        find(connection, "g")
        find(connection, "tx", TRANSACTION)
        for number in range(20):
            assert commit(connection, f"g{number}", {("t", 0): number}) == [0]
        producer = init(connection, "tx")
        assert commit_in(connection, producer, "g", {("t", 0): 77}) == [0]
    monkeypatch.setattr(coordinator_shards, "RECORDS_A_TURN", 1)
    with Broker(in_process=True, data=tmp_path, settings=settings) as broker, connected(broker) as connection:
        services = broker.server.services

        def load_and_end() -> None:
            services.groups.shards.close()
            services.groups.shards.refresh()
            marker = EndMarker(producer.producer_id, producer.epoch, True, 0)

            def end_it() -> None:
                shard = services.groups.shards._shards[0]
                assert not shard.is_loaded
                if shard.loaded_end_offset:
                    services.transactions.markers.write(marker, TopicPartition(GROUP_TOPIC, 0), lambda _, code: None)
                else:
                    services.scheduler.loop.call_soon(end_it)

            end_it()

        on_loop(broker, load_and_end)
        until_on_loop(broker, lambda: services.groups.shards.loaded)
        until(lambda: committed(connection, "g", "t", require_stable=True) == (77, 0))


def test_a_step_that_can_not_be_kept_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    with Broker(in_process=True, settings=FAST) as broker, connected(broker) as connection:
        create_topic(connection, "t")
        find(connection, "g")
        assert commit(connection, "g", {("t", 0): 5}) == [0]
        with monkeypatch.context() as patch:
            patch.setattr(Partition, "append_own", full)
            assert commit(connection, "g", {("t", 0): 6}) == [ErrorCode.NOT_COORDINATOR]
        until_on_loop(broker, loaded(broker))
        assert committed(connection, "g", "t") == (5, 0)
        assert commit(connection, "g", {("t", 0): 7}) == [0]
        assert committed(connection, "g", "t") == (7, 0)


def full(*_: object, **__: object) -> None:
    raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")


def test_a_shard_that_fails_again_and_again_is_not_read_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A timer that has run out would fail at once after every reading, as long as the disk is full."""
    clock = ManualClock()
    with Broker(in_process=True, settings=FAST, clock=clock) as broker, connected(broker) as connection:
        create_topic(connection, "t")
        find(connection, "g")
        assert commit(connection, "g", {("t", 0): 5}) == [0]
        with monkeypatch.context() as patch:
            patch.setattr(Partition, "append_own", full)
            assert commit(connection, "g", {("t", 0): 6}) == [ErrorCode.NOT_COORDINATOR]
            until_on_loop(broker, loaded(broker))
            assert commit(connection, "g", {("t", 0): 6}) == [ErrorCode.NOT_COORDINATOR]
            assert commit(connection, "g", {("t", 0): 6}) == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
        assert commit(connection, "g", {("t", 0): 7}) == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
        clock.advance(RELOAD_MS)
        until_on_loop(broker, loaded(broker))
        assert committed(connection, "g", "t") == (5, 0)
        assert commit(connection, "g", {("t", 0): 7}) == [0]


def test_who_waits_is_not_blamed_for_what_another_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {**FAST, "group.initial.rebalance.delay.ms": "60000", "offsets.topic.num.partitions": "1"}
    with Broker(in_process=True, settings=settings) as broker, connected(broker) as connection:
        create_topic(connection, "t")
        find(connection, "g")
        answers: list[int] = []

        def wait() -> None:
            with connected(broker) as other:
                answers.append(join(other, "g").error_code)

        thread = threading.Thread(target=wait)
        thread.start()
        shards = broker.server.services.groups.shards
        until_on_loop(broker, lambda: any(shard.machine.waiting_replies(ErrorCode.NONE) for shard in shards.loaded))

        def too_large(*_: object, **__: object) -> None:
            raise ApiError(ErrorCode.RECORD_LIST_TOO_LARGE, "it does not fit into a segment")

        with monkeypatch.context() as patch:
            patch.setattr(Partition, "append_own", too_large)
            assert commit(connection, "huge", {("t", 0): 6}) == [ErrorCode.UNKNOWN_SERVER_ERROR]
        thread.join(60)
        assert answers == [ErrorCode.NOT_COORDINATOR]


def test_a_record_that_makes_no_sense_keeps_nobody_out(tmp_path: Path) -> None:
    settings = {"transaction.state.log.num.partitions": "1"}
    with Broker(in_process=True, data=tmp_path, settings=settings) as broker, connected(broker) as connection:
        find(connection, "tx", TRANSACTION)
        init(connection, "tx")
        shards = broker.server.services.transactions.shards
        key, value = TransactionMetadata("odd", 77, 1_000, 0).record()
        assert value is not None
        value.transaction_status = 99
        odd = Step(records=[CoordinatorRecord(key, value)])
        on_loop(broker, lambda: shards.carry_out(shards.shard_at(0), odd))
    with Broker(in_process=True, data=tmp_path, settings=settings) as broker, connected(broker) as connection:
        assert init(connection, "tx").epoch == 1


def test_markers_are_written_when_there_are_enough_replicas_again(tmp_path: Path) -> None:
    settings = {"transaction.state.log.num.partitions": "1"}
    with Broker(in_process=True, data=tmp_path, settings=settings) as broker, connected(broker) as connection:
        create_topic(connection, "t")
        find(connection, "tx", TRANSACTION)
        producer = init(connection, "tx")
        assert produce_in(connection, producer, "t") == ErrorCode.NONE
        markers = broker.server.services.transactions.markers
        on_loop(broker, lambda: setattr(markers, "write_until_done", lambda *_: None))
        assert end(connection, producer) is ErrorCode.NONE
        connection.request(incremental(topic_changes(TRANSACTION_TOPIC, ("min.insync.replicas", 0, "2"))))
    with Broker(in_process=True, data=tmp_path, settings=settings) as broker, connected(broker) as connection:
        until_on_loop(broker, lambda: not broker.server.services.transactions.shards.is_loading)
        assert fetch(connection, "t", 0, isolation_level=1).last_stable_offset == 0
        connection.request(incremental(topic_changes(TRANSACTION_TOPIC, ("min.insync.replicas", 0, "1"))))
        until(lambda: fetch(connection, "t", 0, isolation_level=1).last_stable_offset == 2)


def test_whoever_waits_in_a_shard_that_goes_away_is_told_so() -> None:
    settings = {**FAST, "group.initial.rebalance.delay.ms": "60000"}
    with Broker(in_process=True, settings=settings) as broker, connected(broker) as connection:
        find(connection, "g")
        answers: list[int] = []

        def wait() -> None:
            with connected(broker) as other:
                answers.append(join(other, "g").error_code)

        thread = threading.Thread(target=wait)
        thread.start()
        shards = broker.server.services.groups.shards
        until_on_loop(broker, lambda: any(shard.machine.groups for shard in shards.loaded))
        until_on_loop(broker, lambda: any(shard.machine.waiting_replies(ErrorCode.NONE) for shard in shards.loaded))
        connection.request(DeleteTopicsRequest(topics=[DeleteTopicState(name=GROUP_TOPIC)]))
        thread.join(60)
        assert answers == [ErrorCode.NOT_COORDINATOR]
        assert commit(connection, "g", {("t", 0): 5}) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]


def test_a_reply_waits_until_what_it_tells_is_on_the_disk() -> None:
    with Broker(in_process=True, settings=FAST) as broker, connected(broker) as connection:
        create_topic(connection, "t")
        find(connection, "g")
        connection.request(incremental(topic_changes(GROUP_TOPIC, ("flush.messages", 0, "1"))))
        flusher = broker.server.services.replica_manager.flusher
        held: list[object] = []
        on_loop(broker, lambda: setattr(flusher, "request", held.append))
        answers: list[tuple[int, int] | list[int]] = []

        def ask(what: Callable[[object], tuple[int, int] | list[int]]) -> threading.Thread:
            def run() -> None:
                with connected(broker) as other:
                    answers.append(what(other))

            thread = threading.Thread(target=run)
            thread.start()
            return thread

        committing = ask(lambda other: commit(other, "g", {("t", 0): 5}))  # type: ignore[arg-type]
        until(lambda: held)
        fetching = ask(lambda other: committed(other, "g", "t"))  # type: ignore[arg-type]
        waiting = broker.server.services.replica_manager.delayed_produce
        until_on_loop(broker, lambda: waiting.size == 2)
        assert answers == [], "neither who commits nor who asks may see what a power cut can take back"
        log = held[0]
        on_loop(broker, lambda: delattr(flusher, "request"))
        on_loop(broker, lambda: flusher.request(log))  # type: ignore[arg-type]
        committing.join(60)
        fetching.join(60)
        assert sorted(map(str, answers)) == ["(5, 0)", "[0]"]


def test_sessions_end_by_time_that_goes_on_evenly() -> None:
    clock = ManualClock()
    with Broker(in_process=True, settings=FAST, clock=clock) as broker, connected(broker) as connection:
        find(connection, "g")
        member = join_alone(connection, "g", session_timeout_ms=10_000)
        clock.advance(9_000)
        assert heartbeat(connection, "g", member) == ErrorCode.NONE
        clock.advance(9_000)
        assert heartbeat(connection, "g", member) == ErrorCode.NONE
        clock.advance(10_001)
        # A heartbeat would be late, and still in time if it were read first.
        until(lambda: connection.request(DescribeGroupsRequest(groups=["g"])).groups[0].group_state == "Empty")
        assert heartbeat(connection, "g", member) == ErrorCode.UNKNOWN_MEMBER_ID
