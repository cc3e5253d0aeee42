"""Both kernels: what they accept, what they name, and that they never differ."""

from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.records.batch import BatchHeader, check_header, read_header
from barnabas.records.builder import build_batch, end_transaction_marker
from barnabas.records.codecs import Codec
from barnabas.records.record import Record
from tests.records.message_sets import build_message
from tests.records.strategies import Mutation, Row, mutated, mutations, new_records, rows

DELTA_MAX = 2**31 - 1
OFFSET_ORDER = 11


def varint(value: int) -> bytes:
    """The plain definition of a zigzag varint, for any number of bytes."""
    rest = value * 2 if value >= 0 else -value * 2 - 1
    result = bytearray()
    while rest >= 0x80:
        result.append(rest & 0x7F | 0x80)
        rest >>= 7
    result.append(rest)
    return bytes(result)


def record(*fields: bytes | int, length: int | None = None) -> bytes:
    """A record of attributes 0 and these fields: numbers as varints, bytes as they are."""
    body = b"\0" + b"".join(varint(field) if isinstance(field, int) else field for field in fields)
    return varint(len(body) if length is None else length) + body


def fault_of(kernel: ModuleType, data: bytes, count: int = 1, *, dense: bool = False) -> tuple[str, int]:
    last_offset_delta = count - 1 if dense else DELTA_MAX
    fault, position, *_ = kernel.check_records(data, count, dense, last_offset_delta)
    return kernel.FAULTS[fault], position


FINE = record(0, 0, -1, 3, b"abc", 0)


def test_faults_are_the_same_sentences(compiled: ModuleType, fallback: ModuleType) -> None:
    assert compiled.FAULTS == fallback.FAULTS
    assert len(set(compiled.FAULTS)) == len(compiled.FAULTS)
    assert (compiled.COMPILED, fallback.COMPILED) == (True, False)


def test_no_records(any_kernel: ModuleType) -> None:
    assert any_kernel.encode_records([]) == b""
    assert any_kernel.decode_records(b"", 0) == []
    assert any_kernel.check_records(b"", 0, False, 7) == (0, 0, 0, 0, 0)


def test_summary_of_a_walk(any_kernel: ModuleType) -> None:
    records: list[Row] = [(5, 0, None, b"a", ()), (-7, 1, b"k", None, ()), (300, 2, None, b"", ((b"h", None),))]
    data = any_kernel.encode_records(records)
    assert any_kernel.check_records(data, 3, True, 2) == (0, len(data), -7, 300, 2)
    assert any_kernel.check_records(memoryview(data), 3, False, 2) == (0, len(data), -7, 300, 2)
    assert any_kernel.decode_records(data, 3) == records


def test_timestamp_deltas_that_are_all_on_one_side_of_zero(any_kernel: ModuleType) -> None:
    rising: list[Row] = [(5, 0, None, None, ()), (9, 1, None, None, ())]
    assert any_kernel.check_records(any_kernel.encode_records(rising), 2, True, 1)[2:4] == (5, 9)
    falling: list[Row] = [(-5, 0, None, None, ()), (-9, 1, None, None, ())]
    assert any_kernel.check_records(any_kernel.encode_records(falling), 2, True, 1)[2:4] == (-9, -5)


def test_extreme_numbers(any_kernel: ModuleType) -> None:
    records: list[Row] = [(-(2**63), 0, None, None, ()), (2**63 - 1, DELTA_MAX, None, None, ())]
    data = any_kernel.encode_records(records)
    assert data == record(-(2**63), 0, -1, -1, 0) + record(2**63 - 1, DELTA_MAX, -1, -1, 0)
    assert any_kernel.check_records(data, 2, False, DELTA_MAX) == (0, len(data), -(2**63), 2**63 - 1, 2)
    assert any_kernel.decode_records(data, 2) == records


@pytest.mark.parametrize("value", [0, 63, 64, 8191, 8192, 2**20 - 1, 2**20, 2**27 - 1, 2**27, 2**34, 2**62])
@pytest.mark.parametrize("sign", [1, -1])
def test_varints_of_every_length(any_kernel: ModuleType, value: int, sign: int) -> None:
    data = record(sign * value, 0, -1, -1, 0)
    assert any_kernel.check_records(data, 1, True, 0) == (0, len(data), sign * value, sign * value, 1)
    assert any_kernel.encode_records([(sign * value, 0, None, None, ())]) == data


def test_varints_with_needless_bytes_are_read(any_kernel: ModuleType) -> None:
    data = record(b"\x81\x80\x00", b"\x80\x80\x80\x80\x00", b"\x81\x00", -1, 0)
    assert any_kernel.check_records(data, 1, True, 0) == (0, len(data), -1, -1, 1)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is missing: the records end before the count is reached"),
        (varint(-1) + bytes(20), "has a length of fewer than 0 bytes"),
        (varint(-(2**31)) + bytes(20), "has a length of fewer than 0 bytes"),
        (FINE[:-1], "runs past the end of the records"),
        (varint(2**31 - 1) + bytes(20), "runs past the end of the records"),
        (b"\xff", "runs past the end of the records"),
        (b"\xff\xff\xff\xff", "runs past the end of the records"),
        (b"\xff\xff\xff\xff\x1f" + bytes(20), "has a varint that is longer or larger than its type allows"),
        (b"\xff\xff\xff\xff\xff\x01" + bytes(20), "has a varint that is longer or larger than its type allows"),
        (record(b"\xff" * 9 + b"\x02", 0, -1, -1, 0), "has a varint that is longer or larger than its type allows"),
        (record(b"\xff" * 10 + b"\x00", 0, -1, -1, 0), "has a varint that is longer or larger than its type allows"),
        (record(0, 2**31, -1, -1, 0), "has a varint that is longer or larger than its type allows"),
        (record(0, 0, -(2**31) - 1, -1, 0), "has a varint that is longer or larger than its type allows"),
        (varint(0), "has a field that runs past the end of the record"),
        (record(), "has a field that runs past the end of the record"),
        (record(0), "has a field that runs past the end of the record"),
        (record(b"\x80"), "has a field that runs past the end of the record"),
        (record(0, 0), "has a field that runs past the end of the record"),
        (record(0, 0, -1), "has a field that runs past the end of the record"),
        (record(0, 0, -1, -1), "has a field that runs past the end of the record"),
        (record(0, 0, 4, b"abc"), "has a field that runs past the end of the record"),
        (record(0, 0, 2**31 - 1, -1, 0), "has a field that runs past the end of the record"),
        (record(0, 0, -1, 5, b"abc", 0), "has a field that runs past the end of the record"),
        (record(0, 0, -2, -1, 0), "has a key length below -1"),
        (record(0, 0, -1, -2, 0), "has a value length below -1"),
        (record(0, 0, -1, -(2**31), 0), "has a value length below -1"),
        (record(0, 0, -1, -1, -1), "has a negative header count"),
        (record(0, 0, -1, -1, 1, -1, -1), "has a header with a negative key length"),
        (record(0, 0, -1, -1, 1, 0, -2), "has a header with a value length below -1"),
        (record(0, 0, -1, -1, 1), "has a field that runs past the end of the record"),
        (record(0, 0, -1, -1, 1, 9, b"abc"), "has a field that runs past the end of the record"),
        (record(0, 0, -1, -1, 1, 1, b"a", 9, b"abc"), "has a field that runs past the end of the record"),
        (record(0, 0, -1, -1, 2**31 - 1, 1, b"a", -1), "has a field that runs past the end of the record"),
        (record(0, 0, -1, -1, 0, b"!"), "does not fill its length with its fields"),
        (record(0, 0, -1, -1, 1, 0, -1, b"!"), "does not fill its length with its fields"),
        (record(0, -1, -1, -1, 0), "does not have the offset delta that follows the record before"),
        (FINE + b"\0", "is the last of the count, but bytes follow it"),
        (FINE + FINE, "is the last of the count, but bytes follow it"),
    ],
)
def test_bad_records_are_named(any_kernel: ModuleType, data: bytes, words: str) -> None:
    assert fault_of(any_kernel, data) == (words, 0)


@pytest.mark.parametrize("damage", [varint(-1) + bytes(20), record(0, 1, -2, -1, 0), record(0, 1, -1, -1, 0, b"!")])
def test_the_position_is_that_of_the_bad_record(any_kernel: ModuleType, damage: bytes) -> None:
    words, position = fault_of(any_kernel, FINE + damage + record(0, 2, -1, -1, 0), 3)
    assert words != "is fine"
    assert position == len(FINE)


def test_a_count_that_disagrees(any_kernel: ModuleType) -> None:
    two = record(0, 0, -1, -1, 0) + record(0, 1, -1, -1, 0)
    assert fault_of(any_kernel, two, 2, dense=True) == ("is fine", len(two))
    assert fault_of(any_kernel, two, 3)[0] == "is missing: the records end before the count is reached"
    assert fault_of(any_kernel, two, 1)[0] == "is the last of the count, but bytes follow it"
    assert fault_of(any_kernel, b"\0", 0)[0] == "is the last of the count, but bytes follow it"
    fault, *rest = any_kernel.check_records(two, 2, True, 2)
    assert any_kernel.FAULTS[fault] == "count does not agree with the last offset delta"
    assert rest == [0, 0, 0, 0]
    assert any_kernel.check_records(two, 2**31 - 1, False, DELTA_MAX)[0] != 0


def test_offset_deltas_ascend_and_are_dense_only_where_asked(any_kernel: ModuleType) -> None:
    def offsets(*deltas: int) -> bytes:
        return b"".join(record(0, delta, -1, -1, 0) for delta in deltas)

    out_of_order = "does not have the offset delta that follows the record before"
    assert fault_of(any_kernel, offsets(0, 1, 2), 3, dense=True)[0] == "is fine"
    assert fault_of(any_kernel, offsets(0, 1, 3), 3, dense=True) == (out_of_order, 14)
    assert fault_of(any_kernel, offsets(1, 2, 3), 3, dense=True) == (out_of_order, 0)
    assert fault_of(any_kernel, offsets(1, 5, 9), 3)[0] == "is fine"
    assert fault_of(any_kernel, offsets(1, 5, 5), 3) == (out_of_order, 14)
    assert fault_of(any_kernel, offsets(1, 5, 4), 3) == (out_of_order, 14)
    fault, *_ = any_kernel.check_records(offsets(1, 5, 9), 3, False, 8)
    assert any_kernel.FAULTS[fault] == "has an offset delta above the last offset delta of the batch"


@given(records=rows())
def test_records_come_back_as_they_were(any_kernel: ModuleType, records: list[Row]) -> None:
    data = any_kernel.encode_records(records)
    plain = b"".join(
        record(
            time,
            offset,
            *field_parts(key),
            *field_parts(value),
            len(headers),
            *(part for header in headers for field in header for part in field_parts(field)),
        )
        for time, offset, key, value, headers in records
    )
    assert data == plain
    times = [time for time, *_ in records] or [0]
    keyless = sum(key is None for _, _, key, _, _ in records)
    expected = (0, len(data), min(times), max(times), keyless)
    assert any_kernel.check_records(data, len(records), False, DELTA_MAX) == expected
    assert any_kernel.decode_records(data, len(records)) == records


def field_parts(field: bytes | None) -> tuple[int | bytes, ...]:
    return (-1,) if field is None else (len(field), field)


@given(records=rows(), changes=mutations, more=st.integers(-1, 1))
def test_kernels_agree_on_damaged_records(
    compiled: ModuleType, fallback: ModuleType, records: list[Row], changes: list[Mutation], more: int
) -> None:
    data = mutated(compiled.encode_records(records), changes)
    count = max(0, len(records) + more)
    for dense in (False, True):
        for last_offset_delta in (count - 1, DELTA_MAX):
            arguments = (data, count, dense, last_offset_delta)
            assert compiled.check_records(*arguments) == fallback.check_records(*arguments)
    if compiled.check_records(data, count, False, DELTA_MAX)[0] == 0:
        assert compiled.decode_records(data, count) == fallback.decode_records(data, count)
    else:
        for kernel in (compiled, fallback):
            with pytest.raises(AssertionError, match="that check_records refuses"):
                kernel.decode_records(data, count)


SIZES = st.sampled_from([0, 1, 62, 63, 64, 65, 100, 8190, 8191, 8192])
SIMPLE = st.tuples(st.sampled_from([0, 1, -1, 63, -64, 64, 8191, -8192, 8192]), st.none() | SIZES, st.none() | SIZES)


@given(
    shapes=st.lists(SIMPLE, min_size=2, max_size=6),
    first=st.sampled_from([0, 62, 8190]),
    headers=st.none() | st.integers(0, 5),
    changes=mutations,
)
def test_the_fast_walk_finds_what_the_slow_one_does(
    any_kernel: ModuleType,
    shapes: list[tuple[int, int | None, int | None]],
    first: int,
    headers: int | None,
    changes: list[Mutation],
) -> None:
    """Only records whose offsets follow each other are walked fast, and only those before the first other one."""
    before: list[Row] = [(0, offset, None, b"", ()) for offset in range(first)]
    records: list[Row] = [
        (
            time,
            first + number,
            None if key is None else bytes(key),
            None if value is None else bytes(value),
            ((b"h", b"v"),) if number == headers else (),
        )
        for number, (time, key, value) in enumerate(shapes)
    ]
    whole = any_kernel.encode_records(before)
    data = bytes(whole) + bytes(mutated(any_kernel.encode_records(records), changes))
    count = len(before) + len(records)
    dense = any_kernel.check_records(data, count, True, count - 1)
    slow = any_kernel.check_records(data, count, False, count - 1)
    if dense[0] != OFFSET_ORDER:
        assert dense == slow
    elif slow[0] == 0:
        offsets = [row[1] for row in any_kernel.decode_records(data, count)]
        assert offsets != list(range(count))


def test_the_fast_walk_looks_at_no_byte_behind_the_records(any_kernel: ModuleType) -> None:
    data = any_kernel.encode_records([(0, offset, None, b"", ()) for offset in range(3)])
    for size in range(len(data)):
        # What lies there would make it another answer, or, uncompiled, an IndexError.
        views = [memoryview(data[:size] + bytes([behind]) * 16)[:size] for behind in (0, 1, 2, 0x80, 0xFF)]
        answers = {any_kernel.check_records(view, 3, True, 2) for view in views}
        assert len(answers) == 1
        assert answers.pop()[0] != 0


@given(data=st.binary(max_size=200), count=st.integers(0, 5))
def test_kernels_agree_on_nonsense(compiled: ModuleType, fallback: ModuleType, data: bytes, count: int) -> None:
    arguments = (data, count, False, DELTA_MAX)
    assert compiled.check_records(*arguments) == fallback.check_records(*arguments)


# Whole batches.


def stamped(kernel: ModuleType, data: bytes, position: int = 0) -> tuple[Any, bytes]:
    """What the kernel answers, and what it makes of the bytes."""
    buffer = bytearray(data)
    return kernel.read_plain_batch(buffer, position, 2**40 + 5, 77), bytes(buffer)


PRODUCER = {"producer_id": 2**40, "producer_epoch": 32767, "base_sequence": 2**31 - 1}


@pytest.mark.parametrize("fields", [{}, PRODUCER, {**PRODUCER, "transactional": True}])
@given(records=new_records.filter(bool))
def test_a_plain_batch_is_read_and_stamped(any_kernel: ModuleType, fields: Any, records: Any) -> None:
    data = b"before" + bytes(build_batch(records, **fields)) + b"behind"
    answer, left = stamped(any_kernel, data, 6)
    expected = read_header(data, 6)._replace(base_offset=2**40 + 5, leader_epoch=77)
    assert answer is not None
    assert BatchHeader._make(answer[0]) == expected
    assert read_header(left, 6) == expected
    assert (left[:6], left[6 + 16 :]) == (data[:6], data[6 + 16 :])
    body = data[6 + 61 : 6 + expected.size]
    assert answer[1:] == any_kernel.check_records(body, len(records), True, len(records) - 1)[2:]


NOT_PLAIN = {
    "nothing": b"",
    "cut off": bytes(build_batch([(5, b"k", b"v", ())]))[:-1],
    "compressed": bytes(build_batch([(5, b"k", b"v", ())], codec=Codec.GZIP)),
    "stamped by a broker": bytes(build_batch([(5, b"k", b"v", ())], log_append_time=9)),
    "a marker": bytes(
        end_transaction_marker(commit=True, timestamp=5, producer_id=1, producer_epoch=0, coordinator_epoch=0)
    ),
    "transactional without a producer": bytes(build_batch([(5, b"k", b"v", ())], transactional=True)),
    "a producer without a sequence": bytes(build_batch([(5, b"k", b"v", ())], producer_id=1, producer_epoch=0)),
    "a producer without an epoch": bytes(build_batch([(5, b"k", b"v", ())], producer_id=1, base_sequence=0)),
    "a hole": bytes(build_batch([Record(0, 5, b"k", b"v"), Record(2, 5, b"k", b"v")])),
    "an old message": build_message(1, 0, 5, b"k", b"v" * 80),
}


@pytest.mark.parametrize("kind", NOT_PLAIN)
def test_any_other_batch_is_left_to_the_long_way(any_kernel: ModuleType, kind: str) -> None:
    assert stamped(any_kernel, NOT_PLAIN[kind]) == (None, NOT_PLAIN[kind])


@given(records=new_records, changes=mutations, fields=st.sampled_from([{}, PRODUCER]))
def test_kernels_agree_on_damaged_batches(
    compiled: ModuleType, fallback: ModuleType, records: Any, changes: list[Mutation], fields: Any
) -> None:
    """And what passes is what the checks of the long way let pass, but for the checksum, which comes later."""
    data = bytes(mutated(build_batch(records or [(0, None, None, ())], **fields), changes))
    answer, left = stamped(compiled, data)
    assert stamped(fallback, data) == (answer, left)
    if answer is None:
        assert left == data
        return
    header = read_header(left)
    check_header(header, 0)
    assert BatchHeader._make(answer[0]) == header
    body = left[61 : header.size]
    assert compiled.check_records(body, header.count, True, header.last_offset_delta)[0] == 0


@given(
    st.lists(st.tuples(st.binary(max_size=200), st.none() | st.binary(max_size=300)), min_size=1, max_size=70),
    st.integers(0, 2**62),
    st.integers(-1, 2**31 - 1),
    st.sampled_from([0, 16, 48]),
    st.integers(-1, 2**62),
    st.tuples(st.integers(-1, 2**62), st.integers(-1, 2**15 - 1)),
)
def test_both_kernels_build_the_same_own_batch(
    compiled: ModuleType,
    fallback: ModuleType,
    rows: list[tuple[bytes, bytes | None]],
    base_offset: int,
    leader_epoch: int,
    attributes: int,
    timestamp: int,
    producer: tuple[int, int],
) -> None:
    one, other = (
        kernel.build_own_batch(rows, base_offset, leader_epoch, attributes, timestamp, *producer)
        for kernel in (compiled, fallback)
    )
    assert one == other
    header = read_header(one)
    assert (header.base_offset, header.leader_epoch, header.attributes) == (base_offset, leader_epoch, attributes)
    assert (header.base_timestamp, header.max_timestamp) == (timestamp, timestamp)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (*producer, -1)
    decoded = compiled.decode_records(bytes(one[61:]), header.count)
    assert decoded == [(0, delta, key, value, ()) for delta, (key, value) in enumerate(rows)]
