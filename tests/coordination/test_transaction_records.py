"""The record of transactions, byte by byte; that Kafka reads it is in test_records_by_kafka.py."""

import pytest

from barnabas.coordination.records import TRANSACTION_KINDS, decode, encode
from barnabas.coordination.step import CoordinatorRecord
from barnabas.coordination.transaction_records import TransactionLogKey, TransactionLogValue, TransactionPartitions

KEY = TransactionLogKey(transactional_id="tx")
KEY_BYTES = bytes.fromhex("0000 0002 7478")


@pytest.mark.parametrize(
    ("value", "value_bytes"),
    [
        (
            TransactionLogValue(
                producer_id=1000,
                previous_producer_id=1000,
                producer_epoch=5,
                transaction_timeout_ms=60_000,
                transaction_status=1,
                transaction_partitions=[TransactionPartitions(topic="t", partition_ids=[0, 3])],
                transaction_last_update_timestamp_ms=7,
                transaction_start_timestamp_ms=6,
                client_transaction_version=2,
            ),
            "0001 00000000000003e8 0005 0000ea60 01 02 0274 03 00000000 00000003 00 0000000000000007 0000000000000006"
            " 02 00 08 00000000000003e8 02 02 0002",
        ),
        (
            TransactionLogValue(producer_id=1, next_producer_id=2, transaction_partitions=None),
            "0001 0000000000000001 0000 00000000 00 00 0000000000000000 0000000000000000 01 01 08 0000000000000002",
        ),
    ],
)
def test_golden_bytes(value: TransactionLogValue, value_bytes: str) -> None:
    record = CoordinatorRecord(KEY, value)
    assert encode(record) == (KEY_BYTES, bytes.fromhex(value_bytes))
    assert decode(TRANSACTION_KINDS, KEY_BYTES, bytes.fromhex(value_bytes)) == record


def test_the_older_version_is_read() -> None:
    """As Kafka wrote it before KIP-890: without tagged fields."""
    value_bytes = (
        "0000 00000000000003e8 0005 0000ea60 01 00000001 000174 00000001 00000003 0000000000000007 0000000000000006"
    )
    record = decode(TRANSACTION_KINDS, KEY_BYTES, bytes.fromhex(value_bytes))
    assert record == CoordinatorRecord(
        KEY,
        TransactionLogValue(
            producer_id=1000,
            producer_epoch=5,
            transaction_timeout_ms=60_000,
            transaction_status=1,
            transaction_partitions=[TransactionPartitions(topic="t", partition_ids=[3])],
            transaction_last_update_timestamp_ms=7,
            transaction_start_timestamp_ms=6,
        ),
    )


def test_a_tagged_field_of_a_later_kafka_is_skipped() -> None:
    value_bytes = "0001 0000000000000001 0000 00000000 00 00 0000000000000000 0000000000000000 01 0f 02 abcd"
    record = decode(TRANSACTION_KINDS, KEY_BYTES, bytes.fromhex(value_bytes))
    assert record == CoordinatorRecord(KEY, TransactionLogValue(producer_id=1, transaction_partitions=None))
