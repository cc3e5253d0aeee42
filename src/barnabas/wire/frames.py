"""Frames: four bytes of length, a header, and the body of a request or an answer.

request    | size i32 | api key i16 | version i16 | correlation id i32 | client id, i16 and bytes, -1 is null |
           from the first flexible version of the API on also tagged fields
response   | size i32 | correlation id i32 |
           from the first flexible version of the API on also tagged fields, but never for ApiVersions
"""

from struct import Struct
from typing import NamedTuple

from barnabas.wire.apis import API_VERSIONS_KEY, Api
from barnabas.wire.codec import Part
from barnabas.wire.primitives import DecodeError, skip_tagged_fields

REQUEST_HEADER = Struct(">hhih")
SIZE = Struct(">i")
RESPONSE_HEADER = Struct(">ii")
NO_TAGGED_FIELDS = b"\0"


class RequestHeader(NamedTuple):
    """Who asks for what."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None


def read_request_header(data: bytes | memoryview) -> tuple[RequestHeader, int]:
    """Return the header of a request, without its size, and the position behind what all versions of it have."""
    if len(data) < REQUEST_HEADER.size:
        raise DecodeError(f"a request has {len(data)} bytes, fewer than its header")
    api_key, version, correlation_id, length = REQUEST_HEADER.unpack_from(data)
    if length < 0:
        return RequestHeader(api_key, version, correlation_id, None), REQUEST_HEADER.size
    end = REQUEST_HEADER.size + length
    if end > len(data):
        raise DecodeError(f"the client id ends at byte {end}, but there are only {len(data)}")
    try:
        client_id = str(data[REQUEST_HEADER.size : end], "utf-8")
    except UnicodeDecodeError:
        raise DecodeError("the client id is not text") from None
    return RequestHeader(api_key, version, correlation_id, client_id), end


def body_position(api: Api, version: int, data: bytes | memoryview, position: int) -> int:
    """Return where the body of a request begins, behind the tagged fields of its header."""
    try:
        return skip_tagged_fields(data, position) if api.is_flexible(version) else position
    except IndexError:
        raise DecodeError("a request ends in its header") from None


def request_frame(api: Api, header: RequestHeader, body: list[Part]) -> list[Part]:
    """Return the parts of a request, from its size on."""
    client_id = b"" if header.client_id is None else header.client_id.encode()
    length = -1 if header.client_id is None else len(client_id)
    head = REQUEST_HEADER.pack(header.api_key, header.version, header.correlation_id, length) + client_id
    if api.is_flexible(header.version):
        head += NO_TAGGED_FIELDS
    return [SIZE.pack(len(head) + size_of(body)) + head, *body]


def response_frame(api: Api, version: int, correlation_id: int, body: list[Part]) -> list[Part]:
    """Return the parts of an answer, from its size on."""
    has_tags = api.is_flexible(version) and api.key != API_VERSIONS_KEY
    tags = NO_TAGGED_FIELDS if has_tags else b""
    return [RESPONSE_HEADER.pack(4 + len(tags) + size_of(body), correlation_id) + tags, *body]


def size_of(parts: list[Part]) -> int:
    """Return how many bytes some parts have."""
    return sum(len(part) if isinstance(part, bytes | bytearray | memoryview) else part.size for part in parts)
