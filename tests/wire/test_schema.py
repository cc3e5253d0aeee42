"""Declarations: what the words of a field mean."""

from dataclasses import dataclass, field
from typing import Annotated

import pytest

from barnabas.wire.apis import APIS
from barnabas.wire.schema import FIXED, NEVER, VARIABLE, VERSION_MAX, Versions, WireField, parse_versions, wire_fields


@pytest.mark.parametrize(
    ("text", "versions"), [("3", Versions(3, 3)), ("3+", Versions(3, VERSION_MAX)), ("3-7", Versions(3, 7))]
)
def test_versions(text: str, versions: Versions) -> None:
    assert parse_versions(text) == versions
    assert versions.has(3)
    assert not versions.has(2)


@dataclass(slots=True, kw_only=True)
class Part:
    number: Annotated[int, "int32"] = 4


@dataclass(slots=True, kw_only=True)
class Whole:
    name: Annotated[str | None, "string 1+ null 3-5"] = None
    parts: Annotated[list[Part] | None, "[] 0+ null 2+"] = None
    numbers: Annotated[list[int], "[]int32 2+ tag 7"] = field(default_factory=list)
    part: Annotated[Part, "struct"] = field(default_factory=Part)


def test_a_field_says_type_versions_nulls_and_tag() -> None:
    always, later = Versions(0, VERSION_MAX), Versions(2, VERSION_MAX)
    assert wire_fields(Whole) == (
        WireField("name", "string", None, Versions(1, VERSION_MAX), Versions(3, 5), None, None),
        WireField("parts", "array", Part, always, later, None, None),
        WireField("numbers", "array", "int32", later, NEVER, 7, []),
        WireField("part", "struct", Part, always, NEVER, None, Part()),
    )


def structures_in(structure: type) -> set[type]:
    inner = {found.item for found in wire_fields(structure) if isinstance(found.item, type)}
    return {structure}.union(*map(structures_in, inner))


def test_every_declaration_can_be_understood() -> None:
    for api in APIS.values():
        for message in (api.request, api.response):
            for structure in structures_in(message):
                for found in wire_fields(structure):
                    assert found.kind in (*FIXED, *VARIABLE, "array", "struct"), (structure, found)
                    assert found.item is None or isinstance(found.item, type) or found.item in (*FIXED, *VARIABLE)
                    assert found.tag is None or found.versions.low >= 0
