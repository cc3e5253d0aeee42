"""The codec: every API in every version, round trips, and bytes that are wrong."""

from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.wire.apis import APIS, Api, request_decoder, request_encoder, response_decoder, response_encoder
from barnabas.wire.codec import decoder_for, encoder_for
from barnabas.wire.frames import size_of
from barnabas.wire.primitives import DecodeError, unsigned_varint
from barnabas.wire.schema import ZERO_UUID, Records
from tests.records.strategies import mutated, mutations
from tests.wire.strategies import messages

EVERY_VERSION = [
    pytest.param(api, version, id=f"{api.name}-{version}")
    for api in APIS.values()
    for version in range(api.versions.low, api.versions.high + 1)
]


def joined(parts: list[Any]) -> bytes:
    return b"".join(bytes(part) for part in parts)


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION)
@settings(max_examples=8)
@given(data=st.data())
def test_what_is_encoded_is_decoded(api: Api, version: int, data: st.DataObject) -> None:
    for structure, encoder, decoder in (
        (api.request, request_encoder(api, version), request_decoder(api, version)),
        (api.response, response_encoder(api, version), response_decoder(api, version)),
    ):
        message = data.draw(messages(structure, version))
        encoded = joined(encoder(message))
        assert decoder(encoded + b"rest", 0) == (message, len(encoded))
        for end in {len(encoded) - 1, len(encoded) // 2, data.draw(st.integers(0, len(encoded)))} - {-1, len(encoded)}:
            with pytest.raises(DecodeError):
                decoder(encoded[:end], 0)


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION)
@settings(max_examples=8)
@given(data=st.data(), changes=mutations)
def test_damaged_bytes_are_a_message_or_an_error(api: Api, version: int, data: st.DataObject, changes: Any) -> None:
    message = data.draw(messages(api.request, version))
    damaged = bytes(mutated(bytearray(joined(request_encoder(api, version)(message))), changes))
    try:
        _, end = request_decoder(api, version)(damaged, 0)
    except DecodeError:
        return
    assert end <= len(damaged)


@dataclass(slots=True, kw_only=True)
class Inner:
    number: Annotated[int, "int32"] = 7
    words: Annotated[list[str], "[]string"] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Sample:
    """One field of each kind that has a way of its own."""

    name: Annotated[str | None, "string 0+ null 1+"] = None
    old: Annotated[int, "int16 0-1"] = 5
    ids: Annotated[list[bytes], "[]uuid"] = field(default_factory=list)
    inner: Annotated[Inner | None, "struct 0+ null 2+"] = field(default_factory=Inner)
    blob: Annotated[bytes, "bytes"] = b""
    records: Annotated[Records, "records 0+ null 0+"] = None
    tagged: Annotated[int, "int64 2+ tag 1"] = -1
    later: Annotated[Inner, "struct 2+ tag 0"] = field(default_factory=Inner)


def encode(message: Sample, version: int, *, flexible: bool = False) -> bytes:
    return joined(encoder_for(Sample, version, flexible)(message))


def test_the_bytes_of_a_message_that_is_not_flexible() -> None:
    message = Sample(name="ab", ids=[ZERO_UUID], inner=Inner(number=1, words=["x"]), blob=b"!", records=b"??")
    assert encode(message, 0) == (
        b"\0\2ab" + b"\0\5" + b"\0\0\0\1" + bytes(16) + b"\0\0\0\1" + b"\0\0\0\1\0\1x" + b"\0\0\0\1!" + b"\0\0\0\2??"
    )


def test_the_bytes_of_a_flexible_message() -> None:
    message = Sample(inner=None, tagged=9, later=Inner(number=2))
    inner = b"\0\0\0\2" + b"\1" + b"\0"
    assert encode(message, 2, flexible=True) == (
        b"\0"
        + b"\1"
        + b"\xff"
        + b"\1"
        + b"\0"
        + b"\2"
        + b"\0"
        + bytes([len(inner)])
        + inner
        + b"\1\x08"
        + bytes(7)
        + b"\x09"
    )


@dataclass(slots=True, kw_only=True)
class Tagged:
    """A structure in a tagged field that may be null."""

    inner: Annotated[Inner | None, "struct 0+ null 0+ tag 3"] = None


def test_null_in_a_tagged_field_is_said_as_kafka_says_it() -> None:
    """Kafka takes an empty structure for one that is not there, and 0 for null, which elsewhere is -1."""
    null, some = Tagged(), Tagged(inner=Inner(number=2))
    for message, content in ((null, b"\0"), (some, b"\1" + b"\0\0\0\2" + b"\1" + b"\0")):
        data = joined(encoder_for(Tagged, 0, True)(message))
        assert data == b"\1\3" + bytes([len(content)]) + content
        assert decoder_for(Tagged, 0, True)(data, 0) == (message, len(data))


def test_a_field_that_a_version_lacks_is_as_by_default() -> None:
    message = Sample(name="x", old=99, tagged=9)
    decoded, _ = decoder_for(Sample, 2, True)(encode(message, 2, flexible=True), 0)
    assert decoded == replace(message, old=5)


def test_unknown_tagged_fields_are_skipped() -> None:
    known = encode(Sample(name="x", tagged=9), 2, flexible=True)
    unknown = known[: -len(b"\1\1\x08" + bytes(8))] + b"\3" + b"\1\x08" + known[-8:] + b"\x63\2ab" + b"\x64\0"
    assert decoder_for(Sample, 2, True)(unknown, 0) == (Sample(name="x", tagged=9), len(unknown))


def test_a_tagged_field_must_fill_its_size() -> None:
    known = encode(Sample(name="x", tagged=9), 2, flexible=True)
    with pytest.raises(DecodeError, match="does not fill"):
        decoder_for(Sample, 2, True)(known[: -len(b"\x08" + bytes(8))] + b"\x09" + known[-8:] + b"!", 0)


def test_null_where_it_is_not_allowed_is_an_error() -> None:
    with pytest.raises(DecodeError, match="name is null"):
        decoder_for(Sample, 0, False)(b"\xff\xff" + bytes(100), 0)
    with pytest.raises(AssertionError):
        encode(Sample(name=None), 0)


@pytest.mark.parametrize("length", [2**31 - 1, 2**16, 1000])
def test_a_long_list_in_a_short_frame_is_refused_before_it_is_made(length: int) -> None:
    with pytest.raises(DecodeError, match="items"):
        decoder_for(Sample, 0, False)(b"\0\0\0\5" + length.to_bytes(4, "big") + bytes(100), 0)
    with pytest.raises(DecodeError, match="items"):
        decoder_for(Sample, 2, True)(b"\1" + unsigned_varint(length + 1) + bytes(100), 0)


def test_records_that_lie_in_a_file_stay_there() -> None:
    @dataclass
    class Slice:
        size: int

    where = Slice(300)
    parts = encoder_for(Sample, 0, False)(Sample(name="", records=where))
    assert parts[1] is where
    assert parts[0][-4:] == b"\0\0\1\x2c"
    assert size_of(parts) == len(parts[0]) + 300 + len(parts[2])


def test_records_are_not_copied_when_they_are_decoded() -> None:
    data = memoryview(bytearray(encode(Sample(name="", records=b"abc"), 0)))
    message, _ = decoder_for(Sample, 0, False)(data, 0)
    data[-3:] = b"xyz"
    assert bytes(message.records) == b"xyz"
