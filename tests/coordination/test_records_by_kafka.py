"""Kafka's own tool reads our records, and says of every field what we say."""

import json
import re
from base64 import b64encode, urlsafe_b64encode
from pathlib import Path
from typing import Any

from barnabas.coordination import group_records as group
from barnabas.coordination import transaction_records as transaction
from barnabas.coordination.records import GROUP_KINDS, TRANSACTION_KINDS, RecordKind, encode
from barnabas.coordination.step import CoordinatorRecord
from barnabas.records.builder import build_batch
from barnabas.wire.schema import wire_fields
from tests.kafka_peer.peer import complaints_of, dump_log

TOPIC_ID = bytes(range(200, 216))
OWNED = group.OwnedPartitions(topic_id=TOPIC_ID, partitions=[1, 2])

GROUP_RECORDS: list[tuple[Any, Any]] = [
    (
        group.OffsetCommitKey(group="g", topic="ärger", partition=3),
        group.OffsetCommitValue(offset=2**40, leader_epoch=2, metadata="m", commit_timestamp=7),
    ),
    (
        group.OffsetCommitKey(group="g", topic="t", partition=4),
        group.OffsetCommitValue(offset=5, commit_timestamp=7, topic_id=TOPIC_ID),
    ),
    (
        group.GroupMetadataKey(group="g"),
        group.GroupMetadataValue(
            protocol_type="consumer",
            generation=4,
            protocol="range",
            current_state_timestamp=9,
            members=[
                group.MemberMetadata(
                    member_id="one",
                    group_instance_id="i",
                    client_id="c",
                    client_host="/127.0.0.1",
                    rebalance_timeout=1,
                    session_timeout=2,
                    subscription=b"\xff\x00",
                    assignment=b"\x01",
                ),
                group.MemberMetadata(member_id="two"),
            ],
        ),
    ),
    (
        group.ConsumerGroupMetadataKey(group_id="g"),
        group.ConsumerGroupMetadataValue(epoch=3, metadata_hash=-88),
    ),
    (
        group.ConsumerGroupMemberMetadataKey(group_id="g", member_id="m"),
        group.ConsumerGroupMemberMetadataValue(
            rack_id="r",
            client_id="c",
            client_host="/::1",
            subscribed_topic_names=["a", "b"],
            subscribed_topic_regex="x.*",
            rebalance_timeout_ms=5,
            server_assignor="uniform",
            classic_member_metadata=group.ClassicMemberMetadata(
                session_timeout_ms=6,
                supported_protocols=[group.ClassicProtocol(name="range", metadata=b"\x07")],
            ),
        ),
    ),
    (
        group.ConsumerGroupMemberMetadataKey(group_id="g", member_id="of the consumer protocol"),
        group.ConsumerGroupMemberMetadataValue(client_id="c", subscribed_topic_names=["a"]),
    ),
    (
        group.ConsumerGroupTargetAssignmentMetadataKey(group_id="g"),
        group.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=3, assignment_timestamp=4),
    ),
    (
        group.ConsumerGroupTargetAssignmentMemberKey(group_id="g", member_id="m"),
        group.ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[group.TargetPartitions(topic_id=TOPIC_ID, partitions=[0, 9])]
        ),
    ),
    (
        group.ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="m"),
        group.ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=3,
            previous_member_epoch=2,
            state=1,
            assigned_partitions=[OWNED],
            partitions_pending_revocation=[
                group.OwnedPartitions(topic_id=TOPIC_ID, partitions=[3], assignment_epochs=[7])
            ],
        ),
    ),
    (
        group.ConsumerGroupRegularExpressionKey(group_id="g", regular_expression="a.*"),
        group.ConsumerGroupRegularExpressionValue(topics=["a", "ab"], version=4, timestamp=5),
    ),
    (group.GroupMetadataKey(group="gone"), None),
]
TRANSACTION_RECORDS: list[tuple[Any, Any]] = [
    (
        transaction.TransactionLogKey(transactional_id="t"),
        transaction.TransactionLogValue(
            producer_id=1000,
            previous_producer_id=999,
            next_producer_id=1001,
            producer_epoch=32_767,
            transaction_timeout_ms=60_000,
            transaction_status=3,
            transaction_partitions=[transaction.TransactionPartitions(topic="orders", partition_ids=[0, 3])],
            transaction_last_update_timestamp_ms=456,
            transaction_start_timestamp_ms=123,
            client_transaction_version=2,
        ),
    ),
    (
        transaction.TransactionLogKey(transactional_id="new"),
        transaction.TransactionLogValue(producer_id=1, transaction_partitions=None),
    ),
    (transaction.TransactionLogKey(transactional_id="gone"), None),
]

LINE = re.compile(r"^\| offset: \d+ .* key: (\{.*\}) payload: (.*)$", re.MULTILINE)


def camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def as_json(structure: Any, version: int) -> dict[str, Any]:
    """A structure as Kafka's converters print it: tagged fields only if they are not as by default.

    To Kafka a structure that may be null is by default an empty one, so that null is printed.
    """
    return {
        camel_case(field.name): as_json_value(field.kind, getattr(structure, field.name), version)
        for field in wire_fields(structure.__class__)
        if field.versions.has(version)
        and (field.tag is None or field.kind == "struct" or getattr(structure, field.name) != field.default)
    }


def as_json_value(kind: str, value: Any, version: int) -> Any:
    match value:
        case bytes() if kind == "uuid":
            return urlsafe_b64encode(value).rstrip(b"=").decode()
        case bytes():
            return b64encode(value).decode()
        case list():
            return [as_json_value("", item, version) for item in value]
        case int() | str() | None:
            return value
        case _:
            return as_json(value, version)


def segment_of(folder: Path, records: list[tuple[Any, Any]]) -> Path:
    folder.mkdir()
    path = folder / f"{0:020}.log"
    rows = [(1000, *encode(CoordinatorRecord(key, value)), ()) for key, value in records]
    path.write_bytes(build_batch(rows))
    return path


def expected_of(kinds: tuple[RecordKind, ...], records: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    expected = []
    for key, value in records:
        (kind,) = (kind for kind in kinds if kind.key is type(key))
        has_topic_id = getattr(value, "topic_id", bytes(16)) != bytes(16)
        version = kind.version_max if has_topic_id else kind.version
        expected.append(
            (
                {"type": str(kind.kind), "data": as_json(key, 0)},
                "<DELETE>" if value is None else {"version": str(version), "data": as_json(value, version)},
            )
        )
    return expected


def dumped(decoder: str, path: Path) -> list[tuple[Any, Any]]:
    output = dump_log(decoder, "--files", path)
    assert complaints_of(output) == []
    return [
        (json.loads(key), payload if payload == "<DELETE>" else json.loads(payload))
        for key, payload in LINE.findall(output)
    ]


def test_kafka_reads_the_records_of_groups(kafka_jars: Path, tmp_path: Path) -> None:
    assert {type(key) for key, _ in GROUP_RECORDS} == {kind.key for kind in GROUP_KINDS}
    path = segment_of(tmp_path / "__consumer_offsets-0", GROUP_RECORDS)
    assert dumped("--offsets-decoder", path) == expected_of(GROUP_KINDS, GROUP_RECORDS)


def test_kafka_reads_the_records_of_transactions(kafka_jars: Path, tmp_path: Path) -> None:
    path = segment_of(tmp_path / "__transaction_state-0", TRANSACTION_RECORDS)
    assert dumped("--transaction-log-decoder", path) == expected_of(TRANSACTION_KINDS, TRANSACTION_RECORDS)
