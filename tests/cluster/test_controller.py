"""The controller over a real store: what it makes, refuses, keeps in order, and finds again after a restart."""

import logging
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from barnabas.clock import ManualClock
from barnabas.cluster import nodes
from barnabas.cluster.controller import Controller, NewTopic
from barnabas.cluster.metadata_cache import PartitionState, TopicImage
from barnabas.cluster.topics import PARTITIONS_MAX, new_topic_id
from barnabas.cluster.tree import BadVersionError, Create, Set
from barnabas.wire.errors import ApiError, ErrorCode
from tests.cluster.harness import Cluster, running


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with running(tmp_path) as cluster:
        yield cluster


def check_refused(answer: object, code: ErrorCode, *words: str) -> None:
    assert isinstance(answer, ApiError), answer
    assert answer.code == code
    for word in words:
        assert word in answer.message


def test_first_start_makes_the_root_nodes_and_an_id(tmp_path: Path) -> None:
    with running(tmp_path) as cluster:
        cluster_id = cluster.start_result
        assert len(cluster_id) == 22
        assert cluster.cache.cluster_id == cluster_id
        assert all(cluster.store.tree.get(path) for path in nodes.ROOT_NODES)
        assert cluster.controller.controller_epoch == 1
    with running(tmp_path) as cluster:
        assert cluster.start_result == cluster_id
        assert cluster.controller.controller_epoch == 2
        given = cluster.loop.result(lambda done: cluster.controller.start(done, cluster_id=cluster_id))
        assert given == cluster_id
        other = cluster.loop.result(lambda done: cluster.controller.start(done, cluster_id="other"))
        check_refused(other, ErrorCode.INCONSISTENT_CLUSTER_ID, cluster_id, "other")


def test_a_topic_is_made_and_told_before_done(cluster: Cluster) -> None:
    order: list[str] = []
    cluster.controller.on_topic_change = lambda image: order.append(f"told {cluster.cache.topics[image.name] is image}")
    new = NewTopic(name="orders", num_partitions=3, replication_factor=1, config={"retention.ms": "5"})
    answers: list[TopicImage] = []

    def done(image: TopicImage) -> None:
        order.append("done")
        answers.append(image)

    cluster.controller.create_topic(new, done)
    cluster.loop.run_until(lambda: answers)
    assert order == ["told True", "done"]
    assert answers[0].partitions == (PartitionState(0, 0, (0,), (0,)),) * 3
    assert answers[0].config == {"retention.ms": "5"}
    state = cluster.store.tree.get("/brokers/topics/orders/partitions/2/state")
    assert state is not None
    assert state.value == b'{"controller_epoch":1,"leader":0,"version":1,"leader_epoch":0,"isr":[0]}'


def test_topics_and_epochs_are_the_same_after_a_restart(tmp_path: Path) -> None:
    with running(tmp_path) as cluster:
        given = new_topic_id()
        assert cluster.create("adopted", topic_id=given).topic_id == given
        cluster.create("other", 5)
        before = cluster.cache.topics
    with running(tmp_path) as cluster:
        assert cluster.cache.topics == before


def test_a_thousand_partitions_are_one_commit(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    commits: list[Any] = []
    commit = cluster.store.commit

    def counted(*arguments: Any) -> None:
        commits.append(arguments)
        commit(*arguments)

    monkeypatch.setattr(cluster.store, "commit", counted)
    assert len(cluster.create("wide", 1_000).partitions) == 1_000
    assert len(commits) == 1


COUNTS = {"partitions": -1, "replication_factor": -1}


@pytest.mark.parametrize(
    ("name", "more", "code", "words"),
    [
        ("a b", {}, ErrorCode.INVALID_TOPIC_EXCEPTION, ["a b"]),
        ("here.it_is", {}, ErrorCode.TOPIC_ALREADY_EXISTS, ["here.it_is"]),
        ("here_it.is", {}, ErrorCode.INVALID_TOPIC_EXCEPTION, ["here_it.is collides with here.it_is"]),
        ("t", {"partitions": 0}, ErrorCode.INVALID_PARTITIONS, ["topic t", "1 to 10000"]),
        ("t", {"partitions": -1}, ErrorCode.INVALID_PARTITIONS, ["topic t"]),
        ("t", {"partitions": PARTITIONS_MAX + 1}, ErrorCode.INVALID_PARTITIONS, ["10001"]),
        ("t", {"replication_factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR, ["topic t"]),
        ("t", {"replication_factor": 4}, ErrorCode.INVALID_REPLICATION_FACTOR, ["live brokers, 3"]),
        ("t", {"assignments": {0: [0]}}, ErrorCode.INVALID_REQUEST, ["topic t", "-1"]),
        ("t", {**COUNTS, "assignments": {0: [0, 9]}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, ["[9]", "[0, 1, 2]"]),
        ("t", {**COUNTS, "assignments": {0: [0, 0]}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, ["different brokers"]),
        ("t", {**COUNTS, "assignments": {0: [0], 2: [1]}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, ["[0, 2]"]),
        ("t", {**COUNTS, "assignments": {1: [0]}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, ["[1]"]),
        ("t", {**COUNTS, "assignments": {0: [0], 1: [0, 1]}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, ["partition 1"]),
        ("t", {**COUNTS, "assignments": {0: []}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, ["no replica"]),
        (
            "t",
            {**COUNTS, "assignments": {number: [0] for number in range(PARTITIONS_MAX + 1)}},
            ErrorCode.INVALID_PARTITIONS,
            ["10001"],
        ),
        ("t", {"config": {"bad": "1"}}, ErrorCode.INVALID_CONFIG, ["bad"]),
        ("t", {"topic_id": UUID(int=0)}, ErrorCode.INVALID_REQUEST, ["topic t", "taken"]),
    ],
)
@pytest.mark.parametrize("validate_only", [True, False])
def test_bad_topics_are_refused(
    tmp_path: Path, name: str, more: dict[str, Any], code: ErrorCode, words: list[str], validate_only: bool
) -> None:
    with running(tmp_path, brokers=(0, 1, 2)) as cluster:
        cluster.create("here.it_is")
        before = sorted(cluster.store.tree.rows())
        fields = {"num_partitions": more.get("partitions", 1), "replication_factor": 1, **more}
        fields.pop("partitions", None)
        new = NewTopic(name=name, **fields)
        answer = cluster.loop.result(
            lambda done: cluster.controller.create_topic(new, done, validate_only=validate_only)
        )
        check_refused(answer, code, *words)
        cluster.settle()
        assert sorted(cluster.store.tree.rows()) == before


def test_an_id_that_is_taken_is_refused(cluster: Cluster) -> None:
    topic_id = cluster.create("a").topic_id
    check_refused(cluster.create("b", topic_id=topic_id), ErrorCode.INVALID_REQUEST, "topic b")


def test_assignments_are_taken_as_they_are(tmp_path: Path) -> None:
    with running(tmp_path, brokers=(0, 1, 2)) as cluster:
        image = cluster.create("t", -1, replication_factor=-1, assignments={1: [2, 1], 0: [1, 0]})
        assert [state.replicas for state in image.partitions] == [(1, 0), (2, 1)]
        assert [state.leader for state in image.partitions] == [1, 2]


def test_validation_changes_nothing(cluster: Cluster) -> None:
    cluster.create("a")
    cluster.events.clear()
    before = sorted(cluster.store.tree.rows())
    new = NewTopic(name="b", num_partitions=2, replication_factor=1, config={"retention.ms": "5"})
    image = cluster.loop.result(lambda done: cluster.controller.create_topic(new, done, validate_only=True))
    assert (image.name, len(image.partitions), image.config) == ("b", 2, new.config)
    assert len(cluster.extend("a", 4, validate_only=True).partitions) == 4
    cluster.settle()
    assert sorted(cluster.store.tree.rows()) == before
    assert cluster.events == []


def test_a_topic_that_is_being_created_exists(cluster: Cluster) -> None:
    answers: list[Any] = []
    new = NewTopic(name="a.b", num_partitions=1, replication_factor=1)
    colliding = NewTopic(name="a_b", num_partitions=1, replication_factor=1)
    for topic in (new, new, colliding):
        cluster.controller.create_topic(topic, answers.append)
    cluster.loop.run_until(lambda: len(answers) == 3)
    assert isinstance(answers[0], TopicImage)
    check_refused(answers[1], ErrorCode.TOPIC_ALREADY_EXISTS, "a.b")
    check_refused(answers[2], ErrorCode.INVALID_TOPIC_EXCEPTION, "a_b")


def test_a_topic_that_somebody_else_made_exists(cluster: Cluster) -> None:
    """The commit finds a node that the cache did not know, as it will with several controllers."""
    answers: list[Any] = []
    value = nodes.encode_topic(new_topic_id(), [(0,)])
    cluster.store.commit([Create("/brokers/topics/a", value)], lambda _: None)
    cluster.controller.create_topic(NewTopic(name="a", num_partitions=1, replication_factor=1), answers.append)
    cluster.loop.run_until(lambda: answers)
    check_refused(answers[0], ErrorCode.TOPIC_ALREADY_EXISTS, "a")


def test_changes_of_one_topic_are_kept_in_order(cluster: Cluster) -> None:
    controller = cluster.controller
    answers: list[Any] = []
    new = NewTopic(name="a", num_partitions=1, replication_factor=1)
    controller.create_topic(new, answers.append)
    controller.alter_topic_config("a", lambda _: {"retention.ms": "1"}, answers.append)
    controller.create_partitions("a", 2, None, answers.append)
    controller.alter_topic_config("a", lambda _: {"retention.ms": "2"}, answers.append)
    controller.create_partitions("a", 2, None, answers.append)
    controller.create_partitions("a", 3, None, answers.append)
    controller.delete_topic("a", answers.append)
    controller.alter_topic_config("a", lambda _: {}, answers.append)
    cluster.loop.run_until(lambda: len(answers) == 8)
    images = [answer for answer in answers if isinstance(answer, TopicImage)]
    assert [(len(image.partitions), dict(image.config)) for image in images] == [
        (1, {}),
        (1, {"retention.ms": "1"}),
        (2, {"retention.ms": "1"}),
        (2, {"retention.ms": "2"}),
        (3, {"retention.ms": "2"}),
        (3, {"retention.ms": "2"}),
    ]
    check_refused(answers[4], ErrorCode.INVALID_PARTITIONS, "topic a has 2")
    check_refused(answers[7], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "'a'")
    assert cluster.events == [("change", image) for image in images[:-1]] + [("deleted", images[-1])]


def test_many_topics_at_once(cluster: Cluster) -> None:
    answers: list[Any] = []
    for number in range(300):
        new = NewTopic(name=f"t{number}", num_partitions=2, replication_factor=1)
        cluster.controller.create_topic(new, answers.append)
    cluster.loop.run_until(lambda: len(answers) == 300)
    assert len(cluster.cache.topics) == 300


def test_the_cache_follows_every_operation(cluster: Cluster) -> None:
    def broker(node: int | None, overrides: dict[str, str]) -> Any:
        return cluster.loop.result(lambda done: cluster.controller.alter_broker_config(node, overrides, done))

    steps: list[Callable[[], Any]] = [
        lambda: cluster.create("a.b", 3, config={"retention.ms": "5"}),
        lambda: cluster.create("c"),
        lambda: cluster.extend("c", 4),
        lambda: cluster.alter("a.b", {"retention.ms": "6"}),
        lambda: cluster.alter("a.b", {}),
        lambda: broker(0, {"log.retention.ms": "1"}),
        lambda: broker(None, {"log.retention.ms": "2"}),
        lambda: broker(0, {}),
        lambda: cluster.delete("a.b"),
        lambda: cluster.controller.deletion_finished("a.b"),
        lambda: cluster.create("a_b"),
        lambda: cluster.delete("c"),
    ]
    for step in steps:
        assert not isinstance(step(), ApiError)
        cluster.check_cache()
    assert cluster.cache.broker_configs == {0: {}, -1: {"log.retention.ms": "2"}}
    assert list(cluster.cache.topics) == ["a_b"]


def test_settings_of_topics_and_brokers_are_announced(cluster: Cluster) -> None:
    cluster.create("a")
    cluster.alter("a", {"retention.ms": "1"})
    cluster.loop.result(lambda done: cluster.controller.alter_broker_config(None, {}, done))
    cluster.loop.result(lambda done: cluster.controller.alter_broker_config(7, {}, done))
    tree = cluster.store.tree
    changes = [tree.get(f"/config/changes/{name}") for name in tree.children("/config/changes")]
    assert [change.value for change in changes if change is not None] == [
        b'{"version":2,"entity_path":"topics/a"}',
        b'{"version":2,"entity_path":"brokers/<default>"}',
        b'{"version":2,"entity_path":"brokers/7"}',
    ]
    check_refused(cluster.alter("a", {"bad": "1"}), ErrorCode.INVALID_CONFIG)
    check_refused(cluster.alter("b", {}), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "'b'")
    answer = cluster.loop.result(lambda done: cluster.controller.alter_broker_config(-3, {}, done))
    check_refused(answer, ErrorCode.INVALID_REQUEST, "-3")


def test_announcements_go_after_ten_minutes(tmp_path: Path) -> None:
    clock = ManualClock()
    with running(tmp_path, clock=clock) as cluster:
        cluster.create("a")
        cluster.alter("a", {"retention.ms": "1"})
        clock.advance(300_000)
        cluster.alter("a", {"retention.ms": "2"})
        clock.advance(300_000)
        cluster.controller.remove_old_config_changes()
        cluster.controller.remove_old_config_changes()
        cluster.settle()
        assert cluster.store.tree.children("/config/changes") == ["config_change_0000000001"]
    with running(tmp_path, clock=clock) as cluster:
        clock.advance(599_000)
        cluster.controller.remove_old_config_changes()
        cluster.settle()
        assert cluster.store.tree.children("/config/changes") == ["config_change_0000000001"]
        clock.advance(1_000)
        cluster.controller.remove_old_config_changes()
        cluster.settle()
        assert cluster.store.tree.children("/config/changes") == []
        cluster.alter("a", {})
        assert cluster.store.tree.children("/config/changes") == ["config_change_0000000002"]


def test_more_partitions(tmp_path: Path) -> None:
    with running(tmp_path, brokers=(0, 1, 2)) as cluster:
        before = cluster.create("a", 2, replication_factor=2)
        image = cluster.extend("a", 4)
        assert image.partitions[:2] == before.partitions
        assert image.topic_id == before.topic_id
        assert [len(set(state.replicas)) for state in image.partitions] == [2, 2, 2, 2]
        image = cluster.extend("a", 6, [[0, 1], [2, 0]])
        assert [state.replicas for state in image.partitions[4:]] == [(0, 1), (2, 0)]
        for total in (6, 5, 0, -1):
            check_refused(cluster.extend("a", total), ErrorCode.INVALID_PARTITIONS, "topic a has 6", str(total))
        check_refused(cluster.extend("a", 7 + PARTITIONS_MAX), ErrorCode.INVALID_PARTITIONS, "10001")
        check_refused(cluster.extend("b", 7), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "'b'")
        wrong = ErrorCode.INVALID_REPLICA_ASSIGNMENT
        check_refused(cluster.extend("a", 7, [[0, 1], [1, 2]]), wrong, "1 more", "2 are assigned")
        check_refused(cluster.extend("a", 7, [[0]]), wrong, "partition 6 of topic a has 1 replicas")
        check_refused(cluster.extend("a", 7, [[0, 0]]), wrong, "different brokers")
        check_refused(cluster.extend("a", 7, [[0, 8]]), wrong, "[8]")


def test_a_deletion_survives_a_restart_in_the_middle(tmp_path: Path) -> None:
    with running(tmp_path) as cluster:
        image = cluster.create("a", 3, config={"retention.ms": "1"})
        cluster.create("b")
        assert cluster.delete("a") == image
        assert cluster.store.tree.get("/config/topics/a") is None
        check_refused(cluster.create("a"), ErrorCode.TOPIC_ALREADY_EXISTS, "still being deleted")
        check_refused(cluster.delete("a"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    for _ in range(2):
        with running(tmp_path) as cluster:
            assert list(cluster.cache.topics) == ["b"]
            assert cluster.controller.pending_deletions == {"a": nodes.PendingDeletion("a", image.topic_id, 3)}
            check_refused(cluster.create("a"), ErrorCode.TOPIC_ALREADY_EXISTS)
    with running(tmp_path) as cluster:
        cluster.controller.deletion_finished("a")
        assert cluster.create("a").topic_id != image.topic_id
        assert cluster.store.tree.children("/admin/delete_topics") == []
    with running(tmp_path) as cluster:
        assert cluster.controller.pending_deletions == {}
        assert sorted(cluster.cache.topics) == ["a", "b"]


def test_a_deletion_may_be_finished_while_it_is_told(cluster: Cluster) -> None:
    cluster.controller.on_topic_deleted = lambda image: cluster.controller.deletion_finished(image.name)
    for _ in range(3):
        assert isinstance(cluster.create("a"), TopicImage)
        assert isinstance(cluster.delete("a"), TopicImage)
    cluster.settle()
    assert cluster.store.tree.children("/admin/delete_topics") == []


def test_a_marker_beside_a_living_topic_is_a_left_over(tmp_path: Path) -> None:
    with running(tmp_path) as cluster:
        image = cluster.create("a")
        marker = Create("/admin/delete_topics/a", nodes.encode_deletion(image.topic_id, 1))
        cluster.loop.result(lambda done: cluster.store.commit([marker], done))
        assert isinstance(cluster.delete("a"), TopicImage)
        cluster.controller.deletion_finished("a")
        cluster.create("a")
        cluster.loop.result(lambda done: cluster.store.commit([marker], done))
    with running(tmp_path) as cluster:
        assert cluster.controller.pending_deletions == {}
        assert cluster.store.tree.children("/admin/delete_topics") == []
        assert list(cluster.cache.topics) == ["a"]


def test_blocks_of_producer_ids_never_overlap(tmp_path: Path) -> None:
    blocks: list[range] = []
    for _ in range(3):
        with running(tmp_path) as cluster:
            before = len(blocks)
            for _ in range(3):
                cluster.controller.allocate_producer_ids(blocks.append)
            # One more is asked for, and the broker is gone before it can hand it out.
            cluster.controller.allocate_producer_ids(lambda _: None)
            while len(blocks) < before + 3:
                cluster.loop.run_one()
    assert [len(block) for block in blocks] == [1_000] * 9
    assert len({number for block in blocks for number in block}) == 9_000
    assert blocks[0] == range(1_000)


def test_a_block_that_somebody_else_took_is_not_handed_out(cluster: Cluster) -> None:
    blocks: list[range] = [cluster.loop.result(cluster.controller.allocate_producer_ids)]
    cluster.store.commit([Set(nodes.PRODUCER_IDS, nodes.encode_producer_ids(9, range(1_000, 2_000)))], lambda _: None)
    blocks.append(cluster.loop.result(cluster.controller.allocate_producer_ids))
    assert blocks == [range(1_000), range(2_000, 3_000)]


def test_a_node_that_can_not_be_read_is_an_answer(cluster: Cluster) -> None:
    cluster.loop.result(lambda done: cluster.store.commit([Create(nodes.PRODUCER_IDS, b"{")], done))
    answer = cluster.loop.result(cluster.controller.allocate_producer_ids)
    check_refused(answer, ErrorCode.KAFKA_STORAGE_ERROR, nodes.PRODUCER_IDS)


def test_producer_ids_end(cluster: Cluster) -> None:
    last = nodes.encode_producer_ids(9, range(2**63 - 2_000, 2**63 - 1_000))
    cluster.loop.result(lambda done: cluster.store.commit([Create(nodes.PRODUCER_IDS, last)], done))
    assert isinstance(cluster.loop.result(cluster.controller.allocate_producer_ids), ApiError)


def test_a_disk_that_fails_is_an_answer_and_a_line(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    error = sqlite3.OperationalError("disk I/O error")
    monkeypatch.setattr(cluster.store, "commit", lambda _, done: cluster.loop.call_soon(done, error))
    with caplog.at_level(logging.ERROR):
        check_refused(cluster.create("a"), ErrorCode.KAFKA_STORAGE_ERROR, "disk I/O error")
    assert "disk I/O error" in caplog.text
    assert cluster.cache.topics == {}
    assert cluster.events == []
    monkeypatch.undo()
    assert isinstance(cluster.create("a"), TopicImage)


def test_a_plan_that_never_fits_is_given_up(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    error = BadVersionError("/a", 1, 2)
    monkeypatch.setattr(cluster.store, "commit", lambda _, done: cluster.loop.call_soon(done, error))
    check_refused(cluster.create("a"), ErrorCode.UNKNOWN_SERVER_ERROR, "keeps changing")
    monkeypatch.undo()


def test_a_refusal_of_the_broker_is_the_answer(cluster: Cluster) -> None:
    def refuse(_: TopicImage) -> None:
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "no directory is left")

    cluster.controller.on_topic_change = refuse
    check_refused(cluster.create("a"), ErrorCode.KAFKA_STORAGE_ERROR, "no directory")


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_bug_in_one_change_does_not_stop_those_behind_it(cluster: Cluster, is_committed: bool) -> None:
    def fail(_: object) -> None:
        raise ZeroDivisionError

    controller: Controller = cluster.controller
    answers: list[Any] = []
    if is_committed:
        cluster.create("a")
    cluster.create("b")
    controller.alter_topic_config("b", lambda _: {"retention.ms": "1"}, answers.append)
    controller.alter_topic_config("b", lambda _: {} if is_committed else {"bad": "1"}, fail)
    controller.alter_topic_config("b", lambda _: {"retention.ms": "2"}, answers.append)
    with pytest.raises(ZeroDivisionError):
        cluster.loop.run_until(lambda: False)
    cluster.loop.run_until(lambda: len(answers) == 2)
    assert answers[1].config == {"retention.ms": "2"}
    controller.alter_topic_config("b", lambda _: {}, answers.append)
    cluster.loop.run_until(lambda: len(answers) == 3)
