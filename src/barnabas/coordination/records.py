"""Records of the internal topics, between the structures that the machines use and the bytes of key and value.

    key:    0              2                     value:  0              2
            +--------------+----------------            +--------------+----------------
            | kind of      | fields, never              | version of   | fields, flexible from
            | record, i16  | flexible                   | value, i16   | a version on
            +--------------+----------------            +--------------+----------------

Machines make CoordinatorRecords; `encode` makes bytes of them, which go into a batch. At a start the bytes of the log
come back by `decode`.

Rule 1: a kind or a version that is not known here belongs to a later Kafka, is skipped, and stays in the log.
"""

from collections.abc import Hashable, Mapping
from functools import cache
from struct import Struct
from typing import NamedTuple

from barnabas.coordination import group_records as group
from barnabas.coordination import transaction_records as transaction
from barnabas.coordination.step import CoordinatorRecord
from barnabas.wire.codec import Encoder, decoder_for, encoder_for
from barnabas.wire.primitives import DecodeError
from barnabas.wire.schema import ZERO_UUID

_KIND = Struct(">h")


class RecordKind(NamedTuple):
    """One kind of record."""

    kind: int
    key: type
    value: type
    version: int
    """The version that is written."""
    version_max: int
    """The last version that can be read."""
    flexible_since: int


OFFSET_COMMIT = 1
STRING_BYTES_MAX = 32767

GROUP_KINDS = (
    # Also kind 0, of the oldest consumers, has this form.
    RecordKind(OFFSET_COMMIT, group.OffsetCommitKey, group.OffsetCommitValue, 3, 4, 4),
    RecordKind(2, group.GroupMetadataKey, group.GroupMetadataValue, 3, 4, 4),
    RecordKind(3, group.ConsumerGroupMetadataKey, group.ConsumerGroupMetadataValue, 0, 0, 0),
    RecordKind(5, group.ConsumerGroupMemberMetadataKey, group.ConsumerGroupMemberMetadataValue, 0, 0, 0),
    RecordKind(
        6, group.ConsumerGroupTargetAssignmentMetadataKey, group.ConsumerGroupTargetAssignmentMetadataValue, 0, 0, 0
    ),
    RecordKind(
        7, group.ConsumerGroupTargetAssignmentMemberKey, group.ConsumerGroupTargetAssignmentMemberValue, 0, 0, 0
    ),
    RecordKind(
        8, group.ConsumerGroupCurrentMemberAssignmentKey, group.ConsumerGroupCurrentMemberAssignmentValue, 0, 0, 0
    ),
    RecordKind(16, group.ConsumerGroupRegularExpressionKey, group.ConsumerGroupRegularExpressionValue, 0, 0, 0),
)
TRANSACTION_KINDS = (RecordKind(0, transaction.TransactionLogKey, transaction.TransactionLogValue, 1, 1, 1),)

_BY_KEY: dict[Hashable, RecordKind] = {kind.key: kind for kind in GROUP_KINDS + TRANSACTION_KINDS}


@cache
def _by_number(kinds: tuple[RecordKind, ...]) -> Mapping[int, RecordKind]:
    numbers = {kind.kind: kind for kind in kinds}
    if kinds is GROUP_KINDS:
        numbers[0] = numbers[1]
    return numbers


def _offset_commit_version(value: group.OffsetCommitValue) -> int:
    """Return the version that has all that is to be kept: a time of its own to expire, or the id of the topic."""
    if value.expire_timestamp != -1:
        return 1
    return 4 if value.topic_id != ZERO_UUID else 3


def is_too_long(text: str) -> bool:
    """Tell whether records have no room for a text: lengths have two bytes there, and may have more in requests."""
    return len(text) > STRING_BYTES_MAX // 4 and len(text.encode()) > STRING_BYTES_MAX


@cache
def _key_encoder(key: Hashable) -> tuple[RecordKind, bytes, Encoder]:
    kind = _BY_KEY[key]
    return kind, _KIND.pack(kind.kind), encoder_for(kind.key, 0, False)


@cache
def _value_encoder(key: Hashable, version: int) -> tuple[bytes, Encoder]:
    kind = _BY_KEY[key]
    return _KIND.pack(version), encoder_for(kind.value, version, version >= kind.flexible_since)


def encode(record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
    """Return the bytes of a key and of its value."""
    kind, number, encode_key = _key_encoder(record.key.__class__)
    key = number + encode_key(record.key)[0]
    if record.value is None:
        return key, None
    version = _offset_commit_version(record.value) if kind.kind == OFFSET_COMMIT else kind.version
    number, encode_value = _value_encoder(kind.key, version)
    return key, number + encode_value(record.value)[0]


def decode(kinds: tuple[RecordKind, ...], key: bytes, value: bytes | None) -> CoordinatorRecord | None:
    """Return a record, or None for one that is not known here; raises DecodeError for damaged bytes."""
    if len(key) < _KIND.size or (value is not None and len(value) < _KIND.size):
        raise DecodeError("a record of an internal topic is too short to have a version")
    kind = _by_number(kinds).get(_KIND.unpack_from(key)[0])
    if kind is None:
        return None
    named, _ = decoder_for(kind.key, 0, False)(key, _KIND.size)
    if value is None:
        return CoordinatorRecord(named, None)
    version = _KIND.unpack_from(value)[0]
    if not 0 <= version <= kind.version_max:
        return None
    content, _ = decoder_for(kind.value, version, version >= kind.flexible_since)(value, _KIND.size)
    return CoordinatorRecord(named, content)
