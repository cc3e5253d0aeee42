"""How messages are declared: one dataclass a structure, for all its versions, with a word on the wire for each field.

    @structure
    class FetchTopic:
        topic: Annotated[str, "string 0-12"] = ""
        topic_id: Annotated[bytes, "uuid 13+"] = ZERO_UUID
        partitions: Annotated[list[FetchPartition], "[] 0+"] = field(default_factory=list)
        rack: Annotated[str | None, "string 4+ null 7+"] = None
        leader: Annotated[LeaderIdAndEpoch | None, "struct 12+ tag 0"] = None

The word says the type, in which versions the field is there, in which it may be null, and its tag if it is a tagged
field. A list says the type of its items, or nothing when they are structures. In a version that does not have a field,
decoding gives the default and encoding leaves it out.

Rule 1: the names and the order of the fields are those of Kafka's own message definitions.
Rule 2: numbers stay numbers, ids are 16 bytes, records are the bytes they came as.
"""

from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import cache
from typing import (
    Annotated,
    Any,
    NamedTuple,
    TypeAlias,
    TypeVar,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

Declared = TypeVar("Declared")

VERSION_MAX = 32767
ZERO_UUID = bytes(16)

Records: TypeAlias = Any
"""Batches as bytes or, on the way out, a slice of a file: anything else that has a `size`."""

# The types of one fixed size, by the letter that `struct` has for them.
FIXED = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
VARIABLE = ("string", "bytes", "records")


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def structure(declared: type[Declared]) -> type[Declared]:
    """Make a dataclass of a declaration.

    What can be the same function for all of them is: to write one for each, as `dataclass` does, took longer than all
    else that the messages of a starting broker need.
    """
    declared.__doc__ = declared.__doc__ or declared.__name__
    made = dataclass(slots=True, kw_only=True, repr=False, eq=False, match_args=False)(declared)
    made.__repr__ = _show  # type: ignore[method-assign]
    made.__eq__ = _is_equal  # type: ignore[method-assign]
    made.__hash__ = None  # type: ignore[assignment]
    return made


def _show(message: Any) -> str:
    """Write a message as the call that makes it."""
    values = ", ".join(f"{name}={getattr(message, name)!r}" for name in message.__slots__)
    return f"{type(message).__qualname__}({values})"


def _is_equal(one: Any, other: Any) -> Any:
    if type(one) is not type(other):
        return NotImplemented
    names = one.__slots__
    return [getattr(one, name) for name in names] == [getattr(other, name) for name in names]


class Versions(NamedTuple):
    """A range of versions, both ends included."""

    low: int
    high: int

    def has(self, version: int) -> bool:
        """Tell whether a version is in the range."""
        return self.low <= version <= self.high


NEVER = Versions(1, 0)


class WireField(NamedTuple):
    """What the codec needs to know of a field."""

    name: str
    kind: str
    item: str | type | None
    versions: Versions
    nullable: Versions
    tag: int | None
    default: Any


def parse_versions(text: str) -> Versions:
    """Read 3, 3+ or 3-7."""
    if text.endswith("+"):
        return Versions(int(text[:-1]), VERSION_MAX)
    low, _, high = text.partition("-")
    return Versions(int(low), int(high or low))


@cache
def wire_fields(structure: type) -> tuple[WireField, ...]:
    """Return the fields of a structure in the order of the wire."""
    hints = get_type_hints(structure, include_extras=True)
    return tuple(_wire_field(hints[field.name], field) for field in fields(structure))


def _wire_field(hint: Any, field: Any) -> WireField:
    assert get_origin(hint) is Annotated, f"{field.name} has no word for the wire"
    python_type, word = get_args(hint)
    kind, *rest = word.split()
    words = dict(zip(rest[1::2], rest[2::2], strict=True)) if rest else {}
    default = field.default if field.default is not MISSING else field.default_factory()
    item: str | type | None = None
    if kind.startswith("[]"):
        kind, item = "array", kind[2:] or _structure_in(python_type)
    elif kind == "struct":
        item = _structure_in(python_type)
    return WireField(
        name=field.name,
        kind=kind,
        item=item,
        versions=parse_versions(rest[0]) if rest else Versions(0, VERSION_MAX),
        nullable=parse_versions(words["null"]) if "null" in words else NEVER,
        tag=int(words["tag"]) if "tag" in words else None,
        default=default,
    )


def _structure_in(python_type: Any) -> type:
    """Return the dataclass in `list[X]`, `X | None` and their combinations."""
    if isinstance(python_type, type) and is_dataclass(python_type):
        return python_type
    for part in get_args(python_type):
        if part is not type(None):
            return _structure_in(part)
    raise AssertionError(f"{python_type} names no structure")
