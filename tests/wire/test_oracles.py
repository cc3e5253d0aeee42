"""Our codec against two others: what one writes the other reads, with the same values under the same names."""

import io
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any
from uuid import UUID

import kafka.protocol.admin
import kafka.protocol.consumer
import kafka.protocol.metadata
import kafka.protocol.producer
import kafka.protocol.sasl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import KioIndexError, load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from barnabas.wire.apis import APIS, PRIVATE_KEYS, Api
from barnabas.wire.codec import decoder_for, encoder_for
from tests.wire.strategies import Limits, messages

KIO = [
    pytest.param(api, version, side, id=f"{api.name}{side}-{version}")
    for api in APIS.values()
    if api.key not in PRIVATE_KEYS
    for version in range(api.versions.low, api.versions.high + 1)
    for side in ("Request", "Response")
]


def plain(value: Any) -> Any:
    """A value of any library as plain data: numbers, texts, bytes, lists, and dicts by field name."""
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, set):
        # kafka-python shows the bits of authorized operations as a set; none at all is "not asked for".
        return sum(1 << int(bit) for bit in value)
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, UUID):
        return value.bytes
    return bytes(value) if isinstance(value, memoryview | bytearray) else value


def our_name(name: str, ours: dict[str, Any]) -> str:
    """kio drops the unit from the names of times, and kafka-python a prefix that two messages have."""
    candidates = (name, f"{name}_ms", f"topic_{name}", f"cluster_{name}")
    return next(candidate for candidate in candidates if candidate in ours)


def agree(theirs: Any, ours: Any) -> bool:
    """Tell whether every field that they have is the same with us; what they lack, their version lacks."""
    if isinstance(theirs, dict):
        return all(agree(value, ours[our_name(name, ours)]) for name, value in theirs.items())
    if isinstance(theirs, list):
        return len(theirs) == len(ours) and all(map(agree, theirs, ours))
    return bool(theirs == ours) or (theirs is None and ours in (bytes(16), -1))


WHOLE_SECONDS = st.integers(0, 2**40).map(lambda seconds: seconds // 1000 * 1000)

# kio gives these meanings of their own, which have fewer values than the numbers they are.
KIO_LIMITS = Limits(
    error_code=st.integers(-1, 118),
    throttle_time_ms=st.integers(0, 2**31 - 1),
    timeout_ms=st.integers(0, 2**31 - 1),
    max_wait_ms=st.integers(0, 2**31 - 1),
    transaction_timeout_ms=st.integers(0, 2**31 - 1),
    partition_error_code=st.integers(-1, 118),
    log_append_time_ms=WHOLE_SECONDS,
    transaction_start_time_ms=WHOLE_SECONDS,
    retention_time_ms=st.integers(-1, 2**40),
    session_lifetime_ms=st.integers(0, 2**40),
)


def our_structure(api: Api, side: str) -> type:
    return api.request if side == "Request" else api.response


@pytest.mark.parametrize(("api", "version", "side"), KIO)
@settings(max_examples=5)
@given(data=st.data())
def test_kio_reads_and_writes_the_same(api: Api, version: int, side: str, data: st.DataObject) -> None:
    load = load_request_schema if side == "Request" else load_response_schema
    try:
        schema = load(api.key, version)
    except KioIndexError:
        assert (api.name, version) in KIO_LACKS
        return
    structure, is_flexible = our_structure(api, side), api.is_flexible(version)
    message = data.draw(messages(structure, version, KIO_LIMITS))
    encoded = b"".join(map(bytes, encoder_for(structure, version, is_flexible)(message)))
    theirs, _ = entity_reader(schema)(encoded, 0)
    assert agree(plain(theirs), plain(message))
    written = io.BytesIO()
    entity_writer(schema)(written, theirs)
    assert decoder_for(structure, version, is_flexible)(written.getvalue(), 0) == (message, len(encoded))


KIO_LACKS = {("Produce", 0), ("Produce", 1), ("Produce", 2)}


def kafka_python_class(api: Api, side: str) -> Any:
    kafka_python = kafka.protocol
    for module in (
        kafka_python.admin,
        kafka_python.consumer,
        kafka_python.metadata,
        kafka_python.producer,
        kafka_python.sasl,
    ):
        found = getattr(module, api.name + side, None)
        if found is not None:
            return found
    return None


@pytest.mark.parametrize(("api", "version", "side"), KIO)
@settings(max_examples=5)
@given(data=st.data())
def test_kafka_python_reads_and_writes_the_same(api: Api, version: int, side: str, data: st.DataObject) -> None:
    their_class = kafka_python_class(api, side)
    if their_class is None or not their_class.valid_versions[0] <= version <= their_class.valid_versions[1]:
        assert (api.name, version) in KAFKA_PYTHON_LACKS
        return
    structure, is_flexible = our_structure(api, side), api.is_flexible(version)
    # kafka-python answers an ApiVersions that failed in version 0 whatever version was asked for, as a broker would.
    limits = Limits(
        topic_authorized_operations=st.integers(0, 2**14),
        cluster_authorized_operations=st.integers(0, 2**14),
        authorized_operations=st.integers(0, 2**14),
        **({"error_code": st.just(0)} if api.name == "ApiVersions" else {}),
    )
    message = data.draw(messages(structure, version, limits))
    encoded = b"".join(map(bytes, encoder_for(structure, version, is_flexible)(message)))
    theirs = their_class.decode(encoded, version=version)
    assert agree(plain(theirs.to_dict(json=False)), plain(message))
    if (api.name, side) in KAFKA_PYTHON_ONLY_READS:
        return
    assert decoder_for(structure, version, is_flexible)(bytes(theirs.encode()), 0) == (
        message,
        len(encoded),
    )


# Its encoder of this one asks for an attribute that a decoded request does not have.
KAFKA_PYTHON_ONLY_READS = {("DeleteTopics", "Request")}
KAFKA_PYTHON_LACKS = KIO_LACKS | {
    (name, version) for name in ("ConsumerGroupHeartbeat", "ConsumerGroupDescribe") for version in (0, 1)
}
