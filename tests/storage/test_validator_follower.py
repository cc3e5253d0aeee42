"""The validator on a follower: what a leader sent is kept as it is, or refused with a named error."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.records.builder import build_batch
from barnabas.records.codecs import Codec
from barnabas.records.record import Record
from barnabas.storage.validator import OffsetsOutOfOrderError, validate_for_follower
from barnabas.wire.errors import ApiError, ErrorCode
from tests.records.message_sets import build_message_set
from tests.records.strategies import Mutation, mutated, mutations
from tests.storage.builders import NOW_MS, batch_of, marker_of, refused, with_body, with_fields


def test_a_follower_keeps_every_byte_and_offset() -> None:
    sent = bytes(
        batch_of(3, base_offset=10, leader_epoch=4)
        + marker_of(1, commit=True, base_offset=13, leader_epoch=4)
        + batch_of(2, base_offset=20, leader_epoch=5, codec=Codec.GZIP, log_append_time=7)
    )
    data, headers = validate_for_follower(sent, 10)
    assert bytes(data) == sent
    assert [(header.base_offset, header.leader_epoch) for header in headers] == [(10, 4), (13, 4), (20, 5)]


def test_a_follower_takes_what_compaction_left() -> None:
    batch = build_batch([Record(12, NOW_MS, b"a", b"", ()), Record(17, NOW_MS, b"b", b"", ())], base_offset=10)
    empty = with_body(batch_of(2, base_offset=20), b"", count=0)
    _, headers = validate_for_follower(batch + empty, 5)
    assert [(header.base_offset, header.last_offset) for header in headers] == [(10, 17), (20, 21)]


@pytest.mark.parametrize("offset", [9, 0])
def test_offsets_that_go_backwards_are_refused(offset: int) -> None:
    with pytest.raises(OffsetsOutOfOrderError) as caught:
        validate_for_follower(batch_of(base_offset=offset), 10)
    assert (caught.value.found, caught.value.expected) == (offset, 10)


def test_offsets_that_go_backwards_within_an_append_are_refused() -> None:
    with pytest.raises(OffsetsOutOfOrderError, match="offset 12, but the log goes on at 13"):
        validate_for_follower(batch_of(3, base_offset=10) + batch_of(base_offset=12), 10)


def test_a_follower_checks_checksums_and_lengths() -> None:
    good = batch_of(base_offset=10)
    for bad in (
        with_fields(good, crc=1),
        with_fields(good, magic=3),
        with_fields(good, batch_length=-1),
        with_fields(good, batch_length=20),
        with_fields(good, last_offset_delta=-1),
        with_fields(good, attributes=5),
    ):
        with refused(ErrorCode.CORRUPT_MESSAGE):
            validate_for_follower(bad, 10)


def test_a_follower_cuts_off_what_a_fetch_did_not_bring_whole() -> None:
    first, second = batch_of(base_offset=10), batch_of(base_offset=11)
    for size in range(len(second)):
        data, headers = validate_for_follower(first + second[:size], 10)
        assert bytes(data) == bytes(first)
        assert len(headers) == 1
    data, headers = validate_for_follower(b"", 10)
    assert (len(data), headers) == (0, [])


@pytest.mark.parametrize("magic", [0, 1])
def test_a_follower_keeps_old_messages_as_they_are(magic: int) -> None:
    plain = build_message_set(magic, [(10, NOW_MS, b"a", b"1"), (11, NOW_MS, b"b", b"2")])
    wrapped = build_message_set(magic, [(12, NOW_MS, b"c", b"3"), (13, NOW_MS, b"d", b"4")], codec=Codec.GZIP)
    data, headers = validate_for_follower(plain + wrapped, 10)
    assert bytes(data) == plain + wrapped
    assert [header.last_offset for header in headers] == [10, 11, 13]
    damaged = bytearray(plain)
    damaged[-1] ^= 1
    with refused(ErrorCode.CORRUPT_MESSAGE):
        validate_for_follower(damaged, 10)


@given(mutations, st.booleans())
def test_whatever_a_leader_sends_a_follower_answers_with_a_named_error(changes: list[Mutation], is_old: bool) -> None:
    old = build_message_set(1, [(10, NOW_MS, b"a", b"1"), (11, NOW_MS, b"b", b"2")])
    sent = old if is_old else bytes(batch_of(3, base_offset=10) + batch_of(base_offset=13))
    try:
        data, headers = validate_for_follower(mutated(sent, changes), 10)
    except ApiError as error:
        assert error.code is ErrorCode.CORRUPT_MESSAGE
    except OffsetsOutOfOrderError as error:
        assert error.found < error.expected
    else:
        assert sum(header.size for header in headers) == len(data)
