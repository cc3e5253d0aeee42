"""The consumer protocol that is embedded in classic groups: what a consumer subscribes to, and what it is assigned.

To a coordinator of classic groups these are bytes that go from member to leader and back. They are read where such
members live in a consumer group (KIP-848), and written when such a group becomes a classic one.

    0              2
    +--------------+----------------------------------------
    | version, i16 | fields of that version, never flexible
    +--------------+----------------------------------------

Rule 1: bytes come from clients, so whatever is wrong with them is a DecodeError.
Rule 2: a version that is later than those here only adds fields at the end, and is read as the last one here.
"""

from dataclasses import field
from struct import Struct
from typing import Annotated

from barnabas.wire.codec import decoder_for, encoder_for
from barnabas.wire.primitives import DecodeError
from barnabas.wire.schema import structure

VERSION_MAX = 3

_VERSION = Struct(">h")


@structure
class TopicPartition:
    """Partitions of one topic, by the topic's name."""

    topic: Annotated[str, "string"] = ""
    partitions: Annotated[list[int], "[]int32"] = field(default_factory=list)


@structure
class ConsumerProtocolSubscription:
    """What a member sends in JoinGroup."""

    topics: Annotated[list[str], "[]string"] = field(default_factory=list)
    user_data: Annotated[bytes | None, "bytes 0+ null 0+"] = None
    owned_partitions: Annotated[list[TopicPartition], "[] 1+"] = field(default_factory=list)
    generation_id: Annotated[int, "int32 2+"] = -1
    rack_id: Annotated[str | None, "string 3+ null 3+"] = None


@structure
class ConsumerProtocolAssignment:
    """What a member gets by SyncGroup."""

    assigned_partitions: Annotated[list[TopicPartition], "[]"] = field(default_factory=list)
    user_data: Annotated[bytes | None, "bytes 0+ null 0+"] = None


def read_version(data: bytes) -> int:
    """Return the version of a subscription or an assignment, as far as it is known here."""
    if len(data) < _VERSION.size:
        raise DecodeError(f"the consumer protocol begins with a version, but there are only {len(data)} bytes")
    version: int = _VERSION.unpack_from(data)[0]
    if version < 0:
        raise DecodeError(f"the consumer protocol has no version {version}")
    return min(version, VERSION_MAX)


def read_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """Read what a member subscribes to."""
    message, _ = decoder_for(ConsumerProtocolSubscription, read_version(data), False)(data, _VERSION.size)
    assert isinstance(message, ConsumerProtocolSubscription)
    return message


def read_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """Read what a member is assigned. No bytes are no partitions: so leaders and coordinators say that."""
    if not data:
        return ConsumerProtocolAssignment()
    message, _ = decoder_for(ConsumerProtocolAssignment, read_version(data), False)(data, _VERSION.size)
    assert isinstance(message, ConsumerProtocolAssignment)
    return message


def write_subscription(subscription: ConsumerProtocolSubscription, version: int) -> bytes:
    """Return a subscription as bytes."""
    return _VERSION.pack(version) + b"".join(encoder_for(ConsumerProtocolSubscription, version, False)(subscription))


def write_assignment(assignment: ConsumerProtocolAssignment, version: int) -> bytes:
    """Return an assignment as bytes."""
    return _VERSION.pack(version) + b"".join(encoder_for(ConsumerProtocolAssignment, version, False)(assignment))
