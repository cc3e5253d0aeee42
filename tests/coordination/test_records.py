"""Records as bytes: there and back for every kind, skipping what a later Kafka wrote, and telling damage."""

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.coordination.group_records import OffsetCommitKey, OffsetCommitValue
from barnabas.coordination.records import GROUP_KINDS, TRANSACTION_KINDS, RecordKind, decode, encode
from barnabas.coordination.step import CoordinatorRecord
from barnabas.coordination.transaction_records import TransactionLogKey, TransactionLogValue
from barnabas.wire.primitives import DecodeError
from tests.wire.strategies import messages

KINDS = [(kinds, kind) for kinds in (GROUP_KINDS, TRANSACTION_KINDS) for kind in kinds]


def named(case: object) -> str | None:
    return case.key.__name__ if isinstance(case, RecordKind) else None


def test_kinds_are_told_apart_by_their_numbers() -> None:
    assert [kind.kind for kind in GROUP_KINDS] == [1, 2, 3, 5, 6, 7, 8, 16]
    assert [kind.kind for kind in TRANSACTION_KINDS] == [0]


@pytest.mark.parametrize(("kinds", "kind"), KINDS, ids=named)
@given(data=st.data())
def test_a_record_comes_back(kinds: tuple[RecordKind, ...], kind: RecordKind, data: st.DataObject) -> None:
    record = CoordinatorRecord(
        data.draw(messages(kind.key, 0)), data.draw(st.none() | messages(kind.value, kind.version))
    )
    assert decode(kinds, *encode(record)) == record


@pytest.mark.parametrize(("kinds", "kind"), KINDS, ids=named)
@given(data=st.data())
def test_a_record_that_is_cut_off_is_damage(
    kinds: tuple[RecordKind, ...], kind: RecordKind, data: st.DataObject
) -> None:
    key, value = encode(
        CoordinatorRecord(data.draw(messages(kind.key, 0)), data.draw(messages(kind.value, kind.version)))
    )
    assert value is not None
    with pytest.raises(DecodeError):
        decode(kinds, key[: data.draw(st.integers(0, len(key) - 1))], value)
    with pytest.raises(DecodeError):
        decode(kinds, key, value[: data.draw(st.integers(0, len(value) - 1))])


@given(key=st.binary(max_size=40), value=st.none() | st.binary(max_size=80))
def test_any_bytes_are_a_record_or_unknown_or_damage(key: bytes, value: bytes | None) -> None:
    for kinds in (GROUP_KINDS, TRANSACTION_KINDS):
        try:
            decode(kinds, key, value)
        except DecodeError:
            continue


@pytest.mark.parametrize("kind", [4, 9, 15, 17, 100, -1])
def test_a_kind_of_a_later_kafka_is_skipped(kind: int) -> None:
    assert decode(GROUP_KINDS, pack(">h", kind) + b"what ever", pack(">h", 0)) is None
    assert decode(TRANSACTION_KINDS, pack(">h", kind) + b"what ever", None) is None


@pytest.mark.parametrize(("kinds", "kind"), KINDS, ids=named)
def test_a_version_of_a_later_kafka_is_skipped(kinds: tuple[RecordKind, ...], kind: RecordKind) -> None:
    key, _ = encode(CoordinatorRecord(kind.key(), None))
    for version in (kind.version_max + 1, 32_767, -1):
        assert decode(kinds, key, pack(">h", version) + b"what ever") is None


def test_the_oldest_key_of_an_offset_is_read_like_the_newer_one() -> None:
    record = CoordinatorRecord(OffsetCommitKey(group="g", topic="t", partition=1), OffsetCommitValue(offset=5))
    key, value = encode(record)
    assert key[:2] == b"\x00\x01"
    assert decode(GROUP_KINDS, b"\x00\x00" + key[2:], value) == record


@given(value=messages(OffsetCommitValue, 4))
def test_an_offset_with_a_topic_id_has_the_version_that_has_it(value: OffsetCommitValue) -> None:
    record = CoordinatorRecord(OffsetCommitKey(group="g"), value)
    _, encoded = encode(record)
    assert encoded is not None
    assert encoded[:2] == (b"\x00\x03" if value.topic_id == bytes(16) else b"\x00\x04")
    assert decode(GROUP_KINDS, *encode(record)) == record


def test_keys_of_the_other_topic_are_not_mixed_up() -> None:
    """Kind 0 is an offset in one topic, and a transactional id in the other."""
    key, value = encode(CoordinatorRecord(TransactionLogKey(transactional_id="t"), TransactionLogValue()))
    with pytest.raises(DecodeError):
        decode(GROUP_KINDS, key, value)
