"""Hypothesis strategies for messages, made from their declarations: any structure, in any version."""

from typing import Any

from hypothesis import strategies as st

from barnabas.wire.schema import WireField, wire_fields

# Kafka's texts, and some that take more than one byte a letter.
texts = st.text(st.characters(codec="utf-8"), max_size=12) | st.text("ab", min_size=130, max_size=140)

NUMBERS = {
    "bool": st.booleans(),
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float64": st.floats(allow_nan=False),
    "uuid": st.binary(min_size=16, max_size=16),
    "string": texts,
    "bytes": st.binary(max_size=200),
    "records": st.binary(max_size=200),
}


class Limits:
    """What another library takes in a field, where that is less than the type allows."""

    def __init__(self, **strategies: st.SearchStrategy[Any]) -> None:
        self._strategies = strategies

    def of(self, field: WireField) -> st.SearchStrategy[Any] | None:
        return self._strategies.get(field.name)


def values(field: WireField, version: int, limits: Limits) -> st.SearchStrategy[Any]:
    """What a field may hold in a version."""
    limited = limits.of(field)
    if limited is not None and field.kind != "array":
        made = limited
    elif field.kind == "array":
        item = messages(field.item, version, limits) if isinstance(field.item, type) else NUMBERS[field.item or ""]
        made = st.lists(item, max_size=3)
    elif field.kind == "struct":
        assert isinstance(field.item, type)
        made = messages(field.item, version, limits)
    else:
        made = NUMBERS[field.kind]
    return st.none() | made if field.nullable.has(version) else made


def messages(structure: type, version: int, limits: Limits | None = None) -> st.SearchStrategy[Any]:
    """Messages of one version: what the version does not have is as it is by default."""
    limits = limits or Limits()
    present = [field for field in wire_fields(structure) if field.versions.has(version)]
    return st.builds(structure, **{field.name: values(field, version, limits) for field in present})
