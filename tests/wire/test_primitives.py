"""Varints and tagged fields, good and bad."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.wire.primitives import DecodeError, read_unsigned_varint, skip_tagged_fields, unsigned_varint


@given(st.integers(0, 2**32 - 1))
def test_a_varint_comes_back(value: int) -> None:
    encoded = unsigned_varint(value)
    assert read_unsigned_varint(b"x" + encoded + b"y", 1) == (value, 1 + len(encoded))


@pytest.mark.parametrize(("value", "encoded"), [(0, b"\0"), (127, b"\x7f"), (128, b"\x80\x01"), (300, b"\xac\x02")])
def test_the_bytes_of_a_varint(value: int, encoded: bytes) -> None:
    assert unsigned_varint(value) == encoded


@pytest.mark.parametrize("data", [b"\xff" * 5 + b"\x01", b"\xff" * 4 + b"\x7f", b"\x80" * 9])
def test_a_varint_of_more_than_32_bits_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeError, match="32 bits"):
        read_unsigned_varint(data, 0)


def test_tagged_fields_are_skipped() -> None:
    assert skip_tagged_fields(b"\0rest", 0) == 1
    assert skip_tagged_fields(b"\2\x05\3abc\x09\0rest", 0) == 8


def test_a_tagged_field_that_runs_past_the_end_is_refused() -> None:
    with pytest.raises(DecodeError, match="tagged field ends"):
        skip_tagged_fields(b"\1\x05\x09abc", 0)
