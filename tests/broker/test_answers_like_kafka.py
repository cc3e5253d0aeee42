"""Odd requests to coordinators, sent to a real Kafka and to ours: both answer with the same error codes.

Every case is a function that talks to a broker and yields what it was answered; names are its own, so that cases do not
disturb each other.
"""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.internal_topics import GROUP_TOPIC, TRANSACTION_TOPIC
from barnabas.client.connection import Connection
from barnabas.client.options import ClientOptions, parse_bootstrap_servers
from barnabas.embedded import Broker
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.consumer_groups import ConsumerGroupHeartbeatRequest, TopicPartitions
from barnabas.wire.messages.coordinators import FindCoordinatorRequest
from barnabas.wire.messages.group_admin import (
    ConsumerGroupDescribeRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
)
from barnabas.wire.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
)
from barnabas.wire.messages.offsets import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas.wire.messages.producers import InitProducerIdRequest
from barnabas.wire.messages.transaction_admin import DescribeTransactionsRequest, ListTransactionsRequest
from tests.broker.asking import create_topic, fetch
from tests.broker.coordinating import (
    GROUP,
    TRANSACTION,
    Member,
    TransactionalProducer,
    add,
    commit,
    commit_in,
    commit_request,
    committed,
    end,
    find,
    init,
    join,
    join_alone,
    produce_in,
)
from tests.broker.turning import until
from tests.kafka_peer.peer import KafkaPeer

Answers = Iterator[tuple[str, Any]]
ODD_NAMES = ["", " ", "a" * 300, "\N{GRINNING FACE}", "\x00", "../..", "__consumer_offsets", "a b\tc\n", "\u4e2d\u6587"]
TRY_AGAIN = (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
"""Markers are being written, or Kafka fetches producer ids."""
CASES: list[Callable[[Connection, str], Answers]] = []


def case(function: Callable[[Connection, str], Answers]) -> Callable[[Connection, str], Answers]:
    """Add a case to the list."""
    CASES.append(function)
    return function


def serve_topic(c: Connection, name: str, partitions: int = 1) -> bytes:
    """Create a topic, wait until its partitions are served, and return its id.

    Kafka's controller answers before its broker has read of the topic, which refuses commits and writes until then.
    """
    topic_id = create_topic(c, name, partitions)
    for index in range(partitions):
        until(partial(is_served, c, name, index))
    return topic_id


def is_served(c: Connection, name: str, index: int) -> bool:
    """Whether a partition answers fetches."""
    return fetch(c, name, 0, index).error_code == ErrorCode.NONE


@case
def odd_group_ids(c: Connection, name: str) -> Answers:
    serve_topic(c, name)
    for odd in ODD_NAMES:
        group = odd and f"{odd}{name}"
        find(c, group)
        yield f"join {odd!r}", join(c, group).error_code
        yield f"commit {odd!r}", commit(c, f"{group}-lone" if odd else "", {(name, 0): 3})
        yield f"committed {odd!r}", committed(c, f"{group}-lone" if odd else "", name)
        yield f"heartbeat {odd!r}", c.request(HeartbeatRequest(group_id=group, member_id="x")).error_code
        yield f"sync {odd!r}", sync(c, group, "x", 1)
        yield f"leave {odd!r}", leave(c, group, "x")
        described = c.request(DescribeGroupsRequest(groups=[group]), 6).groups[0]
        yield f"describe {odd!r}", (described.error_code, described.group_state)
        yield f"delete {odd!r}", c.request(DeleteGroupsRequest(groups_names=[group])).results[0].error_code


def sync(c: Connection, group: str, member_id: str, generation: int, **fields: Any) -> int:
    request = SyncGroupRequest(
        group_id=group,
        member_id=member_id,
        generation_id=generation,
        protocol_type="consumer",
        protocol_name="range",
    )
    for field, value in fields.items():
        setattr(request, field, value)
    return int(c.request(request).error_code)


def leave(c: Connection, group: str, *member_ids: str) -> tuple[int, list[int]]:
    answer = c.request(LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=one) for one in member_ids]))
    return answer.error_code, [one.error_code for one in answer.members]


@case
def wrong_joins(c: Connection, name: str) -> Answers:
    find(c, name)
    for session in (5_999, 1_800_001, -1):
        yield f"session {session}", join(c, f"{name}-s", session_timeout_ms=session).error_code
    yield "unknown member id", join(c, name, "stranger").error_code
    yield "unknown instance with a member id", join(c, name, "stranger", group_instance_id="i").error_code
    for protocol_type, protocols in (("", []), ("consumer", []), ("", [JoinGroupRequestProtocol(name="r")])):
        request = JoinGroupRequest(
            group_id=f"{name}-p",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type=protocol_type,
            protocols=list(protocols),
            group_instance_id="static",
        )
        yield f"protocols {protocol_type!r} {len(protocols)}", c.request(request).error_code
    member = join_alone(c, name)
    request = JoinGroupRequest(
        group_id=name,
        session_timeout_ms=10_000,
        protocol_type="connect",
        protocols=[JoinGroupRequestProtocol(name="range")],
        group_instance_id="other",
    )
    yield "another protocol type", c.request(request).error_code
    request.protocol_type, request.protocols = "consumer", [JoinGroupRequestProtocol(name="unknown")]
    yield "no protocol in common", c.request(request).error_code
    yield "the member goes on", heartbeat(c, name, member)


def heartbeat(c: Connection, group: str, member: Member, instance_id: str | None = None) -> int:
    request = HeartbeatRequest(
        group_id=group,
        generation_id=member.generation_id,
        member_id=member.member_id,
        group_instance_id=instance_id,
    )
    return int(c.request(request).error_code)


@case
def wrong_members(c: Connection, name: str) -> Answers:
    serve_topic(c, name)
    find(c, name)
    member = join_alone(c, name)
    for generation in (0, 2, -1, 2**31 - 1):
        other = Member(member.member_id, generation)
        yield f"heartbeat {generation}", heartbeat(c, name, other)
        yield f"sync {generation}", sync(c, name, member.member_id, generation)
        yield f"commit {generation}", commit(c, name, {(name, 0): 1}, other)
    stranger = Member("stranger", 1)
    yield "heartbeat of a stranger", heartbeat(c, name, stranger)
    yield "sync of a stranger", sync(c, name, "stranger", 1)
    yield "commit of a stranger", commit(c, name, {(name, 0): 1}, stranger)
    yield "leave of a stranger", leave(c, name, "stranger", "", member.member_id)
    yield "leave again", leave(c, name, member.member_id)
    yield "heartbeat of who left", heartbeat(c, name, member)
    yield "sync with another protocol", sync(c, name, member.member_id, 1, protocol_name="other")
    yield "commit of who left", commit(c, name, {(name, 0): 1}, member)
    yield "commit without a member", commit(c, name, {(name, 0): 1})
    unknown = f"{name}-unknown"
    yield "commit with a generation to no group", commit(c, unknown, {(name, 0): 1}, Member("x", 3))
    for version in range(2, 10):
        request = commit_request(unknown, {(name, 0): 1}, Member("x", 3))
        answer = c.request(request, version)
        yield f"the same in version {version}", answer.topics[0].partitions[0].error_code


@case
def static_members(c: Connection, name: str) -> Answers:
    find(c, name)
    first = join_alone(c, name, group_instance_id="one")
    yield "joins", heartbeat(c, name, first, "one")
    again = join(c, name, group_instance_id="one")
    yield "comes back", (again.error_code, again.generation_id, again.member_id != first.member_id)
    second = Member(again.member_id, again.generation_id)
    yield "the old id", heartbeat(c, name, first, "one")
    yield "the old id without its instance", heartbeat(c, name, first)
    yield "the new id", heartbeat(c, name, second, "one")
    yield "an unknown instance", heartbeat(c, name, second, "two")
    yield "sync of the old id", sync(c, name, first.member_id, 1, group_instance_id="one")
    yield "join of the old id", join(c, name, first.member_id, group_instance_id="one").error_code
    answer = c.request(
        LeaveGroupRequest(
            group_id=name,
            members=[
                MemberIdentity(member_id=first.member_id, group_instance_id="one"),
                MemberIdentity(group_instance_id="two"),
                MemberIdentity(group_instance_id="one"),
            ],
        )
    )
    yield "leave", (answer.error_code, [one.error_code for one in answer.members])


@case
def odd_offsets(c: Connection, name: str) -> Answers:
    serve_topic(c, name, 2)
    find(c, name)
    for label, offsets in (
        ("no topic", {("nowhere", 0): 1}),
        ("no partition", {(name, 7): 1}),
        ("negative partition", {(name, -1): 1}),
        ("negative offset", {(name, 0): -5}),
        ("largest offset", {(name, 1): 2**63 - 1}),
    ):
        yield label, commit(c, name, offsets)
    for size in (4096, 4097):
        answer = c.request(commit_request(name, {(name, 0): 1}, metadata="x" * size), 9)
        yield f"metadata of {size}", answer.topics[0].partitions[0].error_code
    answer = c.request(commit_request(name, {(name, 0): 1}, metadata="\u00e9" * 3000), 9)
    yield "metadata of 6000 bytes in 3000 characters", answer.topics[0].partitions[0].error_code
    yield "committed", [committed(c, name, name, index) for index in (0, 1)]
    yield "of no topic", committed(c, name, "nowhere")
    yield "of no group", committed(c, f"{name}-none", name)
    for member_id, epoch in (("x", 1), (None, 0), ("", -1)):
        group = OffsetFetchRequestGroup(
            group_id=name,
            member_id=member_id,
            member_epoch=epoch,
            topics=[OffsetFetchRequestTopics(name=name, partition_indexes=[0])],
        )
        found = c.request(OffsetFetchRequest(groups=[group]), 9).groups[0]
        yield f"fetch as {member_id!r} {epoch}", found.error_code
    for group_id in (name, f"{name}-none"):
        topics = [
            OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
            for topic in (name, "nowhere")
        ]
        deleted = c.request(OffsetDeleteRequest(group_id=group_id, topics=topics))
        codes = sorted((topic.name == name, one.error_code) for topic in deleted.topics for one in topic.partitions)
        yield f"delete of {group_id == name}", (deleted.error_code, codes)
    yield "deleted", committed(c, name, name)


def beat(c: Connection, group: str, member_id: str, epoch: int, version: int = 1, **fields: Any) -> Any:
    request = ConsumerGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=epoch, **fields)
    return c.request(request, version)


@case
def consumer_groups(c: Connection, name: str) -> Answers:
    topic_id = serve_topic(c, name, 2)
    find(c, name)
    full: dict[str, Any] = {
        "rebalance_timeout_ms": 30_000,
        "subscribed_topic_names": [name],
        "topic_partitions": [],
    }
    yield "no group", beat(c, "", "m", 0, **full).error_code
    yield "no member id", beat(c, name, "", 0, **full).error_code
    yield "no subscription", beat(c, name, "m", 0, rebalance_timeout_ms=30_000, topic_partitions=[]).error_code
    yield "no time-out", beat(c, name, "m", 0, subscribed_topic_names=[name], topic_partitions=[]).error_code
    yield "no partitions", beat(c, name, "m", 0, subscribed_topic_names=[name], rebalance_timeout_ms=1).error_code
    yield "unknown assignor", beat(c, name, "m", 0, server_assignor="best", **full).error_code
    yield "empty instance", beat(c, name, "m", 0, instance_id="", **full).error_code
    yield "bad expression", beat(c, name, "m", 0, subscribed_topic_regex="(", **full).error_code
    yield "not there yet", beat(c, name, "m", 5).error_code
    yield "leaves unknown", beat(c, name, "m", -1).error_code
    answer = beat(c, name, "m", 0, **full)
    # Which number an epoch has is the broker's affair: Kafka 4.3 begins at 2, and gathers joins for a while (KIP-1263).
    epoch = answer.member_epoch
    yield "joins", (answer.error_code, answer.member_id, answer.assignment is None)
    answer = beat(c, name, "m", epoch)
    yield "goes on", (answer.error_code, answer.member_epoch - epoch, answer.assignment is None)
    for other in (epoch + 1, epoch + 6, -2, -3):
        yield f"epoch {other - epoch if other >= 0 else other}", beat(c, name, "m", other).error_code
    yield "another epoch commits", commit(c, name, {(name, 0): 1}, Member("m", 9))
    yield "a stranger commits", commit(c, name, {(name, 0): 1}, Member("x", epoch))
    yield "commits", commit(c, name, {(name, 0): 1}, Member("m", epoch))
    yield "commits without a member", commit(c, name, {(name, 0): 1})
    owned = [TopicPartitions(topic_id=topic_id, partitions=[0, 1])]
    yield "owns", beat(c, name, "m", epoch, topic_partitions=owned).error_code
    yield "classic heartbeat", heartbeat(c, name, Member("m", epoch))
    yield "delete", c.request(DeleteGroupsRequest(groups_names=[name])).results[0].error_code
    static = beat(c, name, "s", 0, instance_id="i", **full)
    yield "static", static.error_code
    yield "another one with the same instance", beat(c, name, "t", 0, instance_id="i", **full).error_code
    yield "leaves for a while", beat(c, name, "s", -2, instance_id="i").error_code
    yield "comes back", beat(c, name, "t", 0, instance_id="i", **full).error_code
    yield "the old one", beat(c, name, "s", static.member_epoch, instance_id="i").error_code
    yield "leaves", [beat(c, name, one, -1, instance_id=i).error_code for one, i in (("m", None), ("t", "i"))]
    found = c.request(ConsumerGroupDescribeRequest(group_ids=[name, f"{name}-none"]), 0).groups
    yield "describe", [(one.error_code, one.group_state) for one in found]


@case
def odd_transactional_ids(c: Connection, name: str) -> Answers:
    for odd in ODD_NAMES:
        transactional_id = odd and f"{odd}{name}"
        find(c, transactional_id, TRANSACTION)
        for timeout in (60_000, 0, -1, 900_001):
            request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout)
            answer = c.request(request, 4)
            while answer.error_code in TRY_AGAIN:
                answer = c.request(request, 4)
            yield f"init {odd!r} {timeout}", answer.error_code
        nobody = TransactionalProducer(f"{transactional_id}-none" if odd else "", 1, 0, {})
        yield f"end {odd!r}", [end(c, nobody, version=version).name for version in range(6)]
        (described,) = c.request(
            DescribeTransactionsRequest(transactional_ids=[nobody.transactional_id])
        ).transaction_states
        yield f"describe {odd!r}", described.error_code


@case
def wrong_transactions(c: Connection, name: str) -> Answers:
    serve_topic(c, name, 2)
    find(c, name, TRANSACTION)
    find(c, name, GROUP)
    producer = init(c, name)
    yield "end without a transaction", [end(c, producer, version=version).name for version in (0, 4)]
    yield "no topic", add(c, producer, ("nowhere", 0), (name, 0))
    yield "not added", [produce_in(c, producer, name, version=version) for version in (9, 11)]
    yield "offsets not added", commit_in(c, producer, name, {(name, 0): 1}, version=3)
    other = TransactionalProducer(name, producer.producer_id + 1000, 0, {})
    yield "another id adds", add(c, other, (name, 0))
    yield "another id ends", [end(c, other, version=version).name for version in range(6)]
    yield "another id produces", produce_in(c, other, name)
    future = TransactionalProducer(name, producer.producer_id, producer.epoch + 7, {})
    yield "a future epoch adds", add(c, future, (name, 0))
    yield "a future epoch ends", [end(c, future, version=version).name for version in range(6)]
    yield "a future epoch produces", produce_in(c, future, name)
    yield "adds", add(c, producer, (name, 0))
    yield "produces", produce_in(c, producer, name, version=9)
    yield "produces elsewhere", produce_in(c, producer, name, 1, version=9)
    yield "commits", end(c, producer, version=3).name
    yield "commits again", settled(lambda: end(c, producer, version=3))
    yield "aborts what is committed", settled(lambda: end(c, producer, version=3, is_commit=False))
    newer = init(c, name)
    yield "the next epoch", newer.epoch - producer.epoch
    yield "the old one adds", add(c, producer, (name, 0))
    yield "the old one produces", [produce_in(c, producer, name, version=version) for version in (9, 11, 12)]
    yield "the old one ends", [end(c, producer, version=version).name for version in range(6)]
    yield "the old one commits offsets", [commit_in(c, producer, name, {(name, 0): 1}, version=v) for v in (3, 5)]
    yield "keeps its id", init_with(c, newer, newer.epoch)
    yield "with an old epoch", init_with(c, newer, newer.epoch - 3)
    yield "with another id", init_with(c, other, 0)
    yield "unknown filters", c.request(ListTransactionsRequest(state_filters=["?"])).unknown_state_filters


@case
def partitions_that_do_not_fit(c: Connection, name: str) -> Answers:
    serve_topic(c, name, 2)
    find(c, name, TRANSACTION)
    find(c, name, GROUP)
    producer = init(c, name)
    yield "nothing is added", add(c, producer)
    yield "an internal topic is added", [add(c, producer, (one, 0)) for one in (GROUP_TOPIC, TRANSACTION_TOPIC)]
    for version in range(6):
        yield f"offsets of no topic in {version}", commit_in(c, producer, name, {("nowhere", 0): 1}, version=version)
        yield f"offsets of no partition in {version}", commit_in(c, producer, name, {(name, 7): 1}, version=version)
        yield f"offsets in {version}", commit_in(c, producer, name, {(name, 0): 1}, version=version)
    yield "commits", end(c, producer).name
    partitions = [OffsetDeleteRequestPartition(partition_index=index) for index in (0, 7, -1)]
    topics = [OffsetDeleteRequestTopic(name=name, partitions=partitions)]
    deleted = c.request(OffsetDeleteRequest(group_id=name, topics=topics))
    yield "deletes", sorted((one.partition_index, one.error_code) for one in deleted.topics[0].partitions)
    (described,) = c.request(ConsumerGroupDescribeRequest(group_ids=[""])).groups
    yield "describes a group without a name", described.error_code


def settled(ask: Callable[[], ErrorCode]) -> str:
    """Ask until the markers are written."""
    while True:
        code = ask()
        if code is not ErrorCode.CONCURRENT_TRANSACTIONS:
            return code.name


def init_with(c: Connection, producer: TransactionalProducer, epoch: int) -> int:
    request = InitProducerIdRequest(
        transactional_id=producer.transactional_id,
        transaction_timeout_ms=60_000,
        producer_id=producer.producer_id,
        producer_epoch=epoch,
    )
    while (answer := c.request(request, 4)).error_code in TRY_AGAIN:
        pass
    return int(answer.error_code)


@case
def kinds_of_coordinators(c: Connection, name: str) -> Answers:
    for key_type in (0, 1, 2, 3, -1):
        answer = c.request(FindCoordinatorRequest(key=name, key_type=key_type), 3)
        yield f"type {key_type}", answer.error_code


@pytest.fixture(scope="module")
def our_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker of ours."""
    settings = {"group.initial.rebalance.delay.ms": "0", "auto.create.topics.enable": "false"}
    with Broker(data=tmp_path_factory.mktemp("ours"), settings=settings) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="module")
def kafkas_address(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Kafka, whose coordinators have loaded their partitions."""
    with KafkaPeer(tmp_path_factory.mktemp("theirs") / "kafka") as peer:
        with connected_to(peer.bootstrap_servers) as connection:
            for number in range(100):
                find(connection, f"g{number}", GROUP)
                find(connection, f"t{number}", TRANSACTION)
                until(partial(is_loaded, connection, number))
        yield peer.bootstrap_servers


def is_loaded(connection: Connection, number: int) -> bool:
    """Whether the coordinators of a group and of a transactional id answer."""
    codes = {
        heartbeat(connection, f"g{number}", Member("x", 1)),
        end(connection, TransactionalProducer(f"t{number}", 1, 0, {}), version=3),
    }
    return codes.isdisjoint({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR})


@contextmanager
def connected_to(bootstrap_servers: str) -> Iterator[Connection]:
    """A connection of a test's own."""
    (address,) = parse_bootstrap_servers(bootstrap_servers)
    with Connection(address, ClientOptions(client_id="test", request_timeout_ms=20_000)) as connection:
        yield connection


_numbers = itertools.count()


@pytest.mark.kafka
@pytest.mark.parametrize("one", [pytest.param(one, id=one.__name__) for one in CASES])
def test_both_answer_the_same(one: Callable[[Connection, str], Answers], our_address: str, kafkas_address: str) -> None:
    name = f"{one.__name__.replace('_', '-')}-{next(_numbers)}"
    with connected_to(kafkas_address) as kafka, connected_to(our_address) as ours:
        expected = list(one(kafka, name))
        found = list(one(ours, name))
    assert [label for label, _ in found] == [label for label, _ in expected]
    differing = [
        f"{label}: Kafka {theirs}, we {mine}"
        for (label, theirs), (_, mine) in zip(expected, found, strict=True)
        if theirs != mine
    ]
    assert differing == []
