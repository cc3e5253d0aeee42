"""The records of groups, byte by byte; that Kafka reads them is in test_records_by_kafka.py."""

from typing import Any

import pytest

from barnabas.coordination import group_records as group
from barnabas.coordination.records import GROUP_KINDS, decode, encode
from barnabas.coordination.step import CoordinatorRecord

TOPIC_ID = bytes(range(16))

GOLDEN: list[tuple[Any, Any, str, str]] = [
    (
        group.OffsetCommitKey(group="g", topic="t", partition=3),
        group.OffsetCommitValue(offset=5, leader_epoch=2, metadata="m", commit_timestamp=7),
        "0001 000167 000174 00000003",
        "0003 0000000000000005 00000002 00016d 0000000000000007",
    ),
    (
        group.OffsetCommitKey(group="g", topic="t", partition=3),
        group.OffsetCommitValue(offset=5, leader_epoch=2, metadata="m", commit_timestamp=7, topic_id=TOPIC_ID),
        "0001 000167 000174 00000003",
        "0004 0000000000000005 00000002 026d 0000000000000007 01 00 10 000102030405060708090a0b0c0d0e0f",
    ),
    (
        group.GroupMetadataKey(group="g"),
        group.GroupMetadataValue(
            protocol_type="c",
            generation=4,
            protocol="r",
            leader=None,
            current_state_timestamp=9,
            members=[
                group.MemberMetadata(
                    member_id="m",
                    client_id="c",
                    client_host="/1",
                    rebalance_timeout=1,
                    session_timeout=2,
                    subscription=b"\x01",
                    assignment=b"",
                )
            ],
        ),
        "0002 000167",
        "0003 000163 00000004 000172 ffff 0000000000000009 00000001"
        " 00016d ffff 000163 00022f31 00000001 00000002 00000001 01 00000000",
    ),
    (
        group.ConsumerGroupMetadataKey(group_id="g"),
        group.ConsumerGroupMetadataValue(epoch=3, metadata_hash=8),
        "0003 000167",
        "0000 00000003 01 00 08 0000000000000008",
    ),
    (
        group.ConsumerGroupTargetAssignmentMemberKey(group_id="g", member_id="m"),
        group.ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[group.TargetPartitions(topic_id=TOPIC_ID, partitions=[1])]
        ),
        "0007 000167 00016d",
        "0000 02 000102030405060708090a0b0c0d0e0f 02 00000001 00 00",
    ),
]


@pytest.mark.parametrize(("key", "value", "key_bytes", "value_bytes"), GOLDEN)
def test_golden_bytes(key: Any, value: Any, key_bytes: str, value_bytes: str) -> None:
    record = CoordinatorRecord(key, value)
    assert encode(record) == (bytes.fromhex(key_bytes), bytes.fromhex(value_bytes))
    assert decode(GROUP_KINDS, bytes.fromhex(key_bytes), bytes.fromhex(value_bytes)) == record


@pytest.mark.parametrize(
    ("value_bytes", "value"),
    [
        ("0000 0000000000000005 00016d 0000000000000007", group.OffsetCommitValue()),
        ("0001 0000000000000005 00016d 0000000000000007 0000000000000009", group.OffsetCommitValue(expire_timestamp=9)),
        ("0002 0000000000000005 00016d 0000000000000007", group.OffsetCommitValue()),
    ],
)
def test_offsets_of_older_versions_are_read(value_bytes: str, value: group.OffsetCommitValue) -> None:
    value.offset, value.metadata, value.commit_timestamp = 5, "m", 7
    key = bytes.fromhex("0001 000167 000174 00000003")
    record = decode(GROUP_KINDS, key, bytes.fromhex(value_bytes))
    assert record is not None
    assert record.value == value


def test_a_record_without_a_value_deletes() -> None:
    record = CoordinatorRecord(group.GroupMetadataKey(group="g"), None)
    assert encode(record) == (bytes.fromhex("0002 000167"), None)
    assert decode(GROUP_KINDS, *encode(record)) == record
