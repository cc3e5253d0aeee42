"""Frames: headers of requests and answers, in flexible versions and others."""

import pytest

from barnabas.wire.apis import APIS
from barnabas.wire.frames import (
    RequestHeader,
    body_position,
    read_request_header,
    request_frame,
    response_frame,
    size_of,
)
from barnabas.wire.primitives import DecodeError

PRODUCE, API_VERSIONS = APIS[0], APIS[18]


@pytest.mark.parametrize("version", [8, 9])
@pytest.mark.parametrize("client_id", [None, "", "me", "Jürgen"])
def test_a_request_comes_back(version: int, client_id: str | None) -> None:
    header = RequestHeader(0, version, 77, client_id)
    frame = b"".join(request_frame(PRODUCE, header, [b"body"]))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    found, position = read_request_header(frame[4:])
    assert found == header
    assert frame[4 + body_position(PRODUCE, version, frame[4:], position) :] == b"body"


def test_tagged_fields_of_a_header_are_skipped() -> None:
    data = b"\0\0\0\x09\0\0\0\1\xff\xff" + b"\1\5\2ab" + b"body"
    _, position = read_request_header(data)
    assert data[body_position(PRODUCE, 9, data, position) :] == b"body"


@pytest.mark.parametrize(
    "data", [b"", b"\0\0\0\x09\0\0\0\1\0", b"\0\0\0\x09\0\0\0\1\0\5abc", b"\0\0\0\x09\0\0\0\1\0\1\xff"]
)
def test_a_damaged_header_is_an_error(data: bytes) -> None:
    with pytest.raises(DecodeError):
        read_request_header(data)


def test_a_request_that_ends_in_its_header_is_an_error() -> None:
    data = b"\0\0\0\x09\0\0\0\1\xff\xff"
    with pytest.raises(DecodeError):
        body_position(PRODUCE, 9, data, read_request_header(data)[1])


@pytest.mark.parametrize(
    ("api", "version", "head"),
    [(PRODUCE, 8, b""), (PRODUCE, 9, b"\0"), (API_VERSIONS, 3, b"")],
)
def test_an_answer_has_tagged_fields_only_where_any_client_can_read_them(
    api: object, version: int, head: bytes
) -> None:
    parts = response_frame(api, version, 5, [b"body"])  # type: ignore[arg-type]
    frame = b"".join(parts)
    assert frame == (len(frame) - 4).to_bytes(4, "big") + b"\0\0\0\5" + head + b"body"
    assert size_of(parts) == len(frame)
