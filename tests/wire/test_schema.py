"""Declarations: what the words of a field mean."""

import copy
import pickle
from dataclasses import dataclass, field, replace
from typing import Annotated

import pytest

from barnabas.wire.apis import APIS
from barnabas.wire.schema import (
    FIXED,
    NEVER,
    VARIABLE,
    VERSION_MAX,
    Versions,
    WireField,
    parse_versions,
    structure,
    wire_fields,
)


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
            for declared in structures_in(message):
                for found in wire_fields(declared):
                    assert found.kind in (*FIXED, *VARIABLE, "array", "struct"), (declared, found)
                    assert found.item is None or isinstance(found.item, type) or found.item in (*FIXED, *VARIABLE)
                    assert found.tag is None or found.versions.low >= 0


@structure
class Place:
    """A structure of tests."""

    name: Annotated[str, "string"] = ""
    numbers: Annotated[list[int], "[]int32"] = field(default_factory=list)
    share: Annotated[float, "float64"] = 0.0


@structure
class Named:
    name: Annotated[str, "string"] = ""


def test_structures_behave_as_dataclasses_do() -> None:
    place = Place(name="a", numbers=[1])
    assert repr(place) == "Place(name='a', numbers=[1], share=0.0)"
    assert place == Place(name="a", numbers=[1])
    assert place != Place(name="a", numbers=[2])
    assert place != Named(name="a")  # type: ignore[comparison-overlap]
    assert Place().numbers is not Place().numbers
    assert copy.deepcopy(place) == pickle.loads(pickle.dumps(place)) == replace(place) == place
    nothing = Place(share=float("nan"))
    assert nothing == replace(nothing), "the same object is the same value"
    with pytest.raises(TypeError, match="unhashable"):
        hash(place)
    with pytest.raises(TypeError, match="positional"):
        Place("a")  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        place.other = 1  # type: ignore[attr-defined]
