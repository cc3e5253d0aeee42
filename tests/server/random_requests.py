"""Random requests of every API and version, and what can happen to their bytes on the way: all from one seed.

Messages are made from their declarations. Their values are partly nonsense and partly what a running broker knows (a
topic, its id, a batch, the name of a setting), because nonsense alone never gets behind the first check.
"""

import random
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from barnabas.wire.apis import APIS, Api, request_encoder
from barnabas.wire.frames import RequestHeader, request_frame
from barnabas.wire.schema import WireField, wire_fields
from tests.storage.builders import batch_of, sent_by

TOPIC = "fuzzed"
TEXTS = (
    TOPIC,
    TOPIC,
    "other",
    "",
    ".",
    "..",
    "a/b",
    "x" * 249,
    "x" * 250,
    "y" * 20_000,
    "\u00fc\u20ac",
    "a\0b",
    "-1",
    "0",
)
SETTINGS = ("retention.ms", "segment.bytes", "cleanup.policy", "max.message.bytes", "no.such.setting", "listeners", "")
SETTING_VALUES = (
    "1",
    "-1",
    "604800000",
    "delete",
    "compact",
    "not a number",
    "9" * 30,
    "v" * 20_000,
    "\1" * 32_000,
    "\u00fc",
)
NUMBERS = (-1, 0, 1, 2, 3, 7, 100, 127)
WIDTHS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}

# Numbers that would make a case slow instead of interesting: how many partitions are made, how long is waited.
TAMED = {
    "num_partitions": (-2, -1, 0, 1, 2, 3),
    "count": (-1, 0, 1, 2, 4),
    "max_wait_ms": (-1, 0, 1, 5),
    "timeout_ms": (-1, 0, 1, 1000),
}


class Case(NamedTuple):
    """Some bytes to send, and what they are."""

    api: Api
    version: int
    kind: str
    data: bytes


class RequestMaker:
    """Makes messages, always the same for a seed."""

    def __init__(self, seed: int, topic_ids: tuple[bytes, ...] = ()) -> None:
        self.random = random.Random(seed)
        self._topic_ids = topic_ids

    def message(self, structure: type, version: int) -> Any:
        """A message of one version: what the version does not have is as it is by default."""
        present = [field for field in wire_fields(structure) if field.versions.has(version)]
        return structure(**{field.name: self._value(field, version) for field in present})

    def _value(self, field: WireField, version: int) -> Any:
        if field.nullable.has(version) and self.random.random() < 0.2:
            return None
        if field.kind == "array":
            return [self._item(field, version) for _ in range(self.random.choice((0, 1, 1, 1, 2, 3)))]
        if field.kind == "struct":
            assert isinstance(field.item, type)
            return self.message(field.item, version)
        return self._single(field.kind, field.name)

    def _item(self, field: WireField, version: int) -> Any:
        return self.message(field.item, version) if isinstance(field.item, type) else self._single(field.item or "", "")

    def _single(self, kind: str, name: str) -> Any:
        choose = self.random.choice
        if name in TAMED:
            return choose(TAMED[name])
        if kind in WIDTHS:
            bits = WIDTHS[kind]
            return choose((*NUMBERS, 2 ** (bits - 1) - 1, -(2 ** (bits - 1)), self.random.getrandbits(bits - 1)))
        if kind == "string":
            return self._text(name)
        if kind in ("records", "bytes"):
            return self._records()
        if kind == "uuid":
            return choose((*self._topic_ids, bytes(16), self.random.randbytes(16)))
        return {"bool": choose((True, False)), "float64": self.random.random()}.get(kind, self.random.getrandbits(15))

    def _text(self, name: str) -> str:
        if name in ("value", "name") and self.random.random() < 0.5:
            return self.random.choice(SETTING_VALUES if name == "value" else SETTINGS)
        return self.random.choice(TEXTS)

    def _records(self) -> bytes:
        batch = bytearray(
            self.random.choice((batch_of(3, timestamp=1), sent_by(self.random.randrange(5), 0, timestamp=1), b""))
        )
        change = self.random.randrange(4)
        if change == 1 and batch:
            batch[self.random.randrange(len(batch))] ^= 1 << self.random.randrange(8)
        elif change == 2:
            del batch[self.random.randrange(len(batch) + 1) :]
        elif change == 3:
            batch += self.random.randbytes(self.random.randrange(80))
        return bytes(batch)

    def frame(self, api: Api, version: int) -> bytes:
        """A whole request with its size."""
        client_id = self.random.choice((None, "", "fuzzer", "__admin_client"))
        header = RequestHeader(api.key, version, self.random.getrandbits(31), client_id)
        body = request_encoder(api, version)(self.message(api.request, version))
        return b"".join(bytes(part) for part in request_frame(api, header, body))

    def mutated(self, frame: bytes) -> tuple[str, bytes]:
        """The same request with something done to its bytes."""
        data = bytearray(frame)
        kind = self.random.choice(("flip", "flips", "cut", "cut and sized", "length", "insert", "remove", "repeat"))
        where = self.random.randrange(4, len(data))
        if kind == "flip":
            data[where] ^= 1 << self.random.randrange(8)
        elif kind == "flips":
            for _ in range(self.random.randrange(2, 20)):
                data[self.random.randrange(4, len(data))] = self.random.getrandbits(8)
        elif kind.startswith("cut"):
            del data[where:]
        elif kind == "length":
            # Whatever stands there is taken for a length by somebody: most fields of a request are some.
            width = self.random.choice((1, 2, 4))
            data[where : where + width] = self.random.choice((b"\x7f", b"\xff", b"\x80", b"\x00")) * width
        elif kind == "insert":
            data[where:where] = self.random.randbytes(self.random.randrange(1, 9))
        elif kind == "remove":
            del data[where : where + self.random.randrange(1, 9)]
        else:
            data += data[where:]
        if kind not in ("cut", "repeat"):
            data[:4] = struct.pack(">i", len(data) - 4)
        return kind, bytes(data)


def all_versions() -> list[tuple[Api, int]]:
    """Every version of every API."""
    return [(api, version) for api in APIS.values() for version in range(api.versions[0], api.versions[1] + 1)]


def mutated_cases(maker: RequestMaker, rounds: int) -> Iterator[Case]:
    """Mutated requests of every API and version."""
    for _ in range(rounds):
        for api, version in all_versions():
            kind, data = maker.mutated(maker.frame(api, version))
            yield Case(api, version, kind, data)
