"""What is found in a produce request's frame; tests/broker/apis/test_produce.py compares it with the codec."""

import os
from types import ModuleType

import pytest

from barnabas.broker import produce_frame
from barnabas.records.codecs import Codec
from barnabas.wire.apis import APIS, request_encoder
from barnabas.wire.frames import RequestHeader, request_frame
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.records.conftest import load_fallback
from tests.storage.builders import batch_of

RECORDS = bytes(batch_of(3))


MODULES = [produce_frame, load_fallback("produce_frame", "broker")]


def frame(version: int, records: bytes = RECORDS, **fields: object) -> bytes:
    topic = TopicProduceData(
        name="orders",
        topic_id=b"0123456789abcdef",
        partition_data=[PartitionProduceData(index=3, records=records)],
    )
    request = ProduceRequest(acks=-1, timeout_ms=1500, topic_data=[topic])
    for name, value in fields.items():
        setattr(request, name, value)
    api = APIS[0]
    parts = request_frame(api, RequestHeader(0, version, 42, "client"), request_encoder(api, version)(request))
    return b"".join(bytes(part) for part in parts)[4:]


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("version", range(3, 14))
def test_the_usual_request_is_read_in_every_version(module: ModuleType, version: int) -> None:
    data = frame(version)
    found = module.read_produce(memoryview(data))
    assert found is not None
    topic = b"0123456789abcdef" if version == 13 else b"orders"
    assert found[:6] == (version, 42, -1, 1500, topic, 3)
    assert data[found[6] : found[7]] == RECORDS
    assert found[8] == b""


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("size", [1, 17, 126])
def test_a_transactional_request_is_read_in_every_version(module: ModuleType, version: int, size: int) -> None:
    records = bytes(batch_of(3, producer_id=7, producer_epoch=1, base_sequence=0, transactional=True))
    data = frame(version, records, transactional_id="t" * size)
    found = module.read_produce(memoryview(data))
    assert found is not None
    assert (found[2], found[3], found[5], found[8]) == (-1, 1500, 3, b"t" * size)
    assert data[found[6] : found[7]] == records
    for end in range(len(data)):
        assert module.read_produce(memoryview(data[:end])) is None


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("version", range(3, 14))
def test_a_request_and_a_batch_that_disagree_about_a_transaction_are_left_to_the_codec(
    module: ModuleType, version: int
) -> None:
    records = bytes(batch_of(3, producer_id=7, producer_epoch=1, base_sequence=0, transactional=True))
    assert module.read_produce(memoryview(frame(version, records))) is None
    assert module.read_produce(memoryview(frame(version, records, transactional_id=""))) is None
    assert module.read_produce(memoryview(frame(version, RECORDS, transactional_id="t"))) is None


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("version", [3, 9, 13])
def test_everything_else_is_left_to_the_codec(module: ModuleType, version: int) -> None:
    assert module.read_produce(memoryview(frame(version, transactional_id="t"))) is None
    assert module.read_produce(memoryview(frame(version, topic_data=[]))) is None
    assert module.read_produce(memoryview(frame(version) + b"\0")) is None
    for size in range(len(frame(version))):
        assert module.read_produce(memoryview(frame(version)[:size])) is None
    other_api = b"\0\1" + frame(version)[2:]
    assert module.read_produce(memoryview(other_api)) is None
    assert module.read_produce(memoryview(b"\0\0\0\x0e" + frame(version)[4:])) is None


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("version", range(3, 14))
def test_records_that_are_not_one_batch_are_left_to_the_codec(module: ModuleType, version: int) -> None:
    old_magic = RECORDS[:16] + b"\1" + RECORDS[17:]
    for records in (RECORDS + RECORDS, RECORDS[:-1], RECORDS + b"\0", old_magic, RECORDS[:60], b""):
        assert module.read_produce(memoryview(frame(version, records))) is None
    zstd = bytes(batch_of(3, codec=Codec.ZSTD))
    assert (module.read_produce(memoryview(frame(version, zstd))) is None) == (version < 7)


@pytest.mark.skipif(os.environ.get("CI") != "true" and not produce_frame.COMPILED, reason="there is no compiler here")
def test_it_is_compiled() -> None:
    assert produce_frame.COMPILED
