"""The short way of OffsetCommit: the bytes and the effects of the long way, or nothing."""

import copy
from typing import Any

import pytest

from barnabas.broker.apis.commit_shortcut import OFFSET_COMMIT_KEY, CommitShortcut
from barnabas.broker.metrics import ApiStats
from barnabas.client.connection import Connection
from barnabas.embedded import Broker
from barnabas.wire.apis import APIS, request_encoder, response_decoder
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.frames import RequestHeader, request_frame
from barnabas.wire.messages.offsets import OffsetCommitRequest
from tests.broker.asking import connected, create_topic
from tests.broker.coordinating import Member, commit_request, committed, find, join_alone
from tests.broker.turning import on_loop
from tests.server.raw import wait_until

COMMIT = APIS[OFFSET_COMMIT_KEY]


class Peer:
    """Whoever asks, for the request channel."""

    client_host = local_host = "127.0.0.1"
    listener = "PLAINTEXT"

    def on_answer(self, request: object) -> None:
        raise AssertionError("it is answered at once")


def frame_of(request: OffsetCommitRequest, version: int, *, number: int = 7, client_id: str | None = "a") -> bytes:
    header = RequestHeader(OFFSET_COMMIT_KEY, version, number, client_id)
    parts = request_frame(COMMIT, header, request_encoder(COMMIT, version)(copy.deepcopy(request)))
    return b"".join(bytes(part) for part in parts)[4:]


def shortly(broker: Broker, frame: bytes) -> bytes | None:
    """The answer of the short way, in a turn of its own."""
    channel = broker.server.channel

    def ask() -> bytes | None:
        answer = channel.answer_shortly(memoryview(bytearray(frame)))
        channel.count_turn(0.0, 1)
        return answer

    return on_loop(broker, ask)


def at_length(broker: Broker, frame: bytes) -> bytes:
    channel: Any = broker.server.channel
    request = on_loop(broker, lambda: channel.handle(Peer(), memoryview(bytearray(frame)), 0.0))
    return b"".join(request.parts)


def end_of_log(broker: Broker, group: str) -> int:
    shards = broker.server.services.groups.shards
    return on_loop(broker, lambda: shards.shard_of(group).partition.log.log_end_offset)


@pytest.fixture
def member(connection: Connection, name: str) -> Member:
    """A member of a group, with a topic of three partitions; all are named `name`."""
    create_topic(connection, name, 3)
    return join_alone(connection, name)


def topic_id_of(broker: Broker, name: str) -> bytes:
    return broker.server.services.cache.topics[name].topic_id.bytes


@pytest.mark.parametrize("version", range(2, 11))
def test_a_commit_is_answered_as_the_long_way_does(
    broker: Broker, connection: Connection, name: str, member: Member, version: int
) -> None:
    request = commit_request(name, {(name, 0): 5, (name, 2): 7}, member, metadata="so far")
    for topic in request.topics:
        topic.topic_id = topic_id_of(broker, name)
    before = end_of_log(broker, name)
    for client_id in (None, "", "client"):
        frame = frame_of(request, version, number=version, client_id=client_id)
        answer = shortly(broker, frame)
        assert answer is not None
        assert answer == at_length(broker, frame)
    assert end_of_log(broker, name) - before == 2 * 2 * 3, "each way appends both, three times"
    assert committed(connection, name, name, 0) == (5, 0)
    assert committed(connection, name, name, 2) == (7, 0)


def test_commits_of_several_partitions_and_topics_are_told_apart(
    broker: Broker, connection: Connection, name: str, member: Member
) -> None:
    create_topic(connection, name + "-b", 2)
    for offsets in ({(name, 0): 1}, {(name, 1): 1}, {(name, 0): 2, (name + "-b", 1): 3}, {(name + "-b", 0): 4}):
        frame = frame_of(commit_request(name, offsets, member), 9)
        answer = shortly(broker, frame)
        assert answer is not None
        assert answer == at_length(broker, frame)
        for (topic, index), offset in offsets.items():
            assert committed(connection, name, topic, index) == (offset, 0)


def test_what_is_committed_shortly_is_there_after_the_log_was_read_again(
    broker: Broker, connection: Connection, name: str, member: Member
) -> None:
    assert shortly(broker, frame_of(commit_request(name, {(name, 1): 99}, member), 9)) is not None
    shards = broker.server.services.groups.shards
    index = on_loop(broker, lambda: shards.index_of(name))
    on_loop(broker, lambda: shards._reload(index))
    wait_until(lambda: on_loop(broker, lambda: shards.find_loaded_of(name)) is not None, "it is not read again")
    assert committed(connection, name, name, 1) == (99, 0)


def test_requests_are_counted_as_those_of_their_api(broker: Broker, name: str, member: Member) -> None:
    stats = broker.server.channel.api_stats[OFFSET_COMMIT_KEY]
    with connected(broker) as connection:
        before = (stats.requests, stats.time.count)
        for offset in range(5):
            connection.request(commit_request(name, {(name, 0): offset}, member), 9)
    after = on_loop(broker, lambda: (stats.requests, stats.time.count))
    assert after == (before[0] + 5, before[1] + 5)


# What goes the long way.


def test_what_is_wrong_in_any_part_changes_nothing(
    broker: Broker, connection: Connection, name: str, member: Member
) -> None:
    stranger, late = Member("stranger", member.generation_id), Member(member.member_id, member.generation_id + 1)
    requests = [
        commit_request(name, {(name, 0): 1}, stranger),
        commit_request(name, {(name, 0): 1}, late),
        commit_request(name, {(name, 0): 1}),
        commit_request(name, {(name, 0): 1, (name, 3): 1}, member),
        commit_request(name, {(name, 0): 1, ("nowhere", 0): 1}, member),
        commit_request(name, {(name, 0): 1}, member, metadata="x" * 4097),
        commit_request(name, {}, member),
        commit_request("no-such-group", {(name, 0): 1}),
    ]
    before = end_of_log(broker, name)
    for request in requests:
        assert shortly(broker, frame_of(request, 9)) is None
    assert end_of_log(broker, name) == before
    assert committed(connection, name, name)[0] == -1


def test_a_topic_id_that_nobody_has_goes_the_long_way(broker: Broker, name: str, member: Member) -> None:
    request = commit_request(name, {(name, 0): 1}, member)
    request.topics[0].topic_id = b"0123456789abcdef"
    assert shortly(broker, frame_of(request, 10)) is None


def test_a_time_to_keep_offsets_goes_the_long_way(broker: Broker, name: str, member: Member) -> None:
    request = commit_request(name, {(name, 0): 1}, member)
    request.retention_time_ms = 1000
    assert shortly(broker, frame_of(request, 4)) is None


def test_damaged_frames_go_the_long_way(broker: Broker, name: str, member: Member) -> None:
    frame = frame_of(commit_request(name, {(name, 0): 1}, member), 9, client_id="abc")
    assert shortly(broker, frame) is not None
    damaged = [frame[:size] for size in range(10, len(frame) - 1)]
    damaged.append(frame[:10] + b"\xff\xfe\xff" + frame[13:])  # A client id that is no text.
    damaged.append(frame[:13] + b"\1\0\0" + frame[14:])  # A tagged field in the header.
    damaged.append(frame[:8] + b"\x7f\xff" + frame[10:])  # A client id that is longer than the request.
    for version in (0, 1, 11, 255):
        damaged.append(frame[:2] + version.to_bytes(2, "big") + frame[4:])
    before = end_of_log(broker, name)
    assert [shortly(broker, one) for one in damaged] == [None] * len(damaged)
    assert end_of_log(broker, name) == before


def test_commits_that_wait_for_the_disk_go_the_long_way(name: str) -> None:
    with Broker(in_process=True, settings={"flush.messages": 1}) as broker, connected(broker) as connection:
        create_topic(connection, name)
        find(connection, name)
        member = join_alone(connection, name)
        request = commit_request(name, {(name, 0): 1}, member)
        assert shortly(broker, frame_of(request, 9)) is None
        assert [one.error_code for topic in connection.request(request, 9).topics for one in topic.partitions] == [0]


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_what_the_log_does_not_take_is_refused_and_taken_back(
    broker: Broker,
    connection: Connection,
    name: str,
    member: Member,
    monkeypatch: pytest.MonkeyPatch,
    failure: ErrorCode,
    told: ErrorCode,
) -> None:
    shards = broker.server.services.groups.shards
    shard = on_loop(broker, lambda: shards.shard_of(name))
    errors = broker.server.channel.api_stats[OFFSET_COMMIT_KEY].errors
    before = errors[told]

    def fail(*_: object) -> None:
        raise ApiError(failure, "no")

    with monkeypatch.context() as patch:
        patch.setattr(type(shard.partition), "append_own", fail)
        answer = shortly(broker, frame_of(commit_request(name, {(name, 0): 1}, member), 9))
    assert answer is not None
    assert codes_in(answer, 9) == [told]
    assert errors[told] == before + 1
    assert on_loop(broker, lambda: shards.find_loaded_of(name)) is not shard
    wait_until(lambda: on_loop(broker, lambda: shards.find_loaded_of(name)) is not None, "it is not read again")
    assert committed(connection, name, name)[0] == -1


def codes_in(answer: bytes, version: int) -> list[int]:
    body, _ = response_decoder(COMMIT, version)(answer, 9 if COMMIT.is_flexible(version) else 8)
    return [one.error_code for topic in body.topics for one in topic.partitions]


def test_what_no_record_can_hold_is_refused_as_well(name: str) -> None:
    with (
        Broker(in_process=True, settings={"offset.metadata.max.bytes": 60_000}) as broker,
        connected(broker) as connection,
    ):
        create_topic(connection, name)
        find(connection, name)
        member = join_alone(connection, name)
        for _ in range(2):
            request = commit_request(name, {(name, 0): 1}, member, metadata="x" * 40_000)
            assert shortly(broker, frame_of(request, 9)) is None, "it is too large for a short way"
            request.topics[0].partitions[0].committed_metadata = "x" * 1000
            assert codes_in(shortly(broker, frame_of(request, 9)) or b"", 9) == [0]
        answer = connection.request(commit_request(name, {(name, 0): 2}, member, metadata="x" * 40_000), 9)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.OFFSET_METADATA_TOO_LARGE
        long_name = commit_request("g" * 33_000, {(name, 0): 2})
        assert connection.request(long_name, 9).topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert committed(connection, name, name)[0] == 1


@pytest.mark.parametrize("first_byte", [1, 127, 255])
def test_another_api_whose_key_has_the_same_last_byte_is_not_taken(
    broker: Broker, name: str, member: Member, first_byte: int
) -> None:
    frame = frame_of(commit_request(name, {(name, 0): 1}, member), 9)
    assert shortly(broker, bytes([first_byte]) + frame[1:]) is None


def test_only_so_many_answers_are_remembered(
    broker: Broker, name: str, member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.broker.apis.commit_shortcut.ANSWERS_MAX", 2)
    shortcut = CommitShortcut(broker.server.services, ApiStats())
    many = commit_request(name, {(name, 0): 1}, member)
    many.topics[0].partitions *= 100
    for request in [many] + [commit_request(name, {(name, index): 1}, member) for index in (0, 1, 2, 0, 1)]:
        frame = frame_of(request, 9)
        answer = on_loop(broker, lambda frame=frame: shortcut(memoryview(frame)))  # type: ignore[misc]
        assert answer == at_length(broker, frame)
        assert len(shortcut._answers) <= 2
        assert sum(map(len, shortcut._answers.values())) < 512
