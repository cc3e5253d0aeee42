"""Where a query begins and ends, as text."""

import pytest

from barnabas.model import TopicPartition
from barnabas.spark.errors import OptionError
from barnabas.spark.source.offset_limits import (
    AtTime,
    AtTimes,
    Named,
    SpecificOffsets,
    check_batch_limits,
    parse_assignment,
    parse_offsets,
    parse_time,
    parse_times,
)

ORDERS_0 = TopicPartition("orders", 0)
ORDERS_1 = TopicPartition("orders", 1)


def test_offsets_are_a_name_or_json() -> None:
    assert parse_offsets("startingOffsets", " EARLIEST ") is Named.EARLIEST
    assert parse_offsets("startingOffsets", "latest") is Named.LATEST
    found = parse_offsets("startingOffsets", '{"orders": {"0": 23, "1": -2}}')
    assert found == SpecificOffsets(option="startingOffsets", offsets={ORDERS_0: 23, ORDERS_1: -2})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("newest", "is 'earliest', 'latest' or JSON"),
        ("{", "is not JSON like"),
        ('{"orders": 5}', "has 5 for topic 'orders'"),
        ('{"orders": {"first": 5}}', "has 'first' as a partition"),
        ('{"orders": {"0": "5"}}', 'has "5" for orders-0'),
        ('{"orders": {"0": true}}', "has true for orders-0"),
        ('{"orders": {"0": -3}}', "has the offset -3 for orders-0"),
    ],
)
def test_offsets_that_can_not_be_read(text: str, problem: str) -> None:
    with pytest.raises(OptionError, match=r"^option 'startingOffsets' ") as raised:
        parse_offsets("startingOffsets", text)
    assert problem in str(raised.value)


def test_times_are_milliseconds() -> None:
    assert parse_time("startingTimestamp", " 1700 ") == AtTime(option="startingTimestamp", timestamp_ms=1700)
    found = parse_times("endingOffsetsByTimestamp", '{"orders": {"0": 1700}}')
    assert found == AtTimes(option="endingOffsetsByTimestamp", timestamps_ms={ORDERS_0: 1700})
    for text in ("-1", "soon", "1.5", "", str(1 << 63)):
        with pytest.raises(OptionError, match="is a time in milliseconds since 1970"):
            parse_time("startingTimestamp", text)
    with pytest.raises(OptionError, match="before 1970"):
        parse_times("startingOffsetsByTimestamp", '{"orders": {"0": -1}}')
    with pytest.raises(OptionError, match="is JSON, but not like"):
        parse_times("startingOffsetsByTimestamp", "[]")


def test_an_assignment_names_partitions() -> None:
    assert parse_assignment("assign", '{"orders": [1, 0, 1]}') == (ORDERS_0, ORDERS_1)
    for text in ("{}", '{"orders": []}'):
        with pytest.raises(OptionError, match="names no partition"):
            parse_assignment("assign", text)
    for text in ('{"orders": 0}', '{"orders": ["0"]}', '{"orders": [-1]}'):
        with pytest.raises(OptionError, match="a list like"):
            parse_assignment("assign", text)


def test_a_batch_neither_begins_at_the_end_nor_ends_at_the_beginning() -> None:
    check_batch_limits(Named.EARLIEST, Named.LATEST)
    with pytest.raises(OptionError, match="'startingOffsets' is 'latest'"):
        check_batch_limits(Named.LATEST, Named.LATEST)
    with pytest.raises(OptionError, match="'endingOffsets' is 'earliest'"):
        check_batch_limits(Named.EARLIEST, Named.EARLIEST)
    with pytest.raises(OptionError, match=r"has -1 \(latest\) for orders-0"):
        check_batch_limits(SpecificOffsets(option="startingOffsets", offsets={ORDERS_0: -1}), Named.LATEST)
    with pytest.raises(OptionError, match=r"has -2 \(earliest\) for orders-0"):
        check_batch_limits(Named.EARLIEST, SpecificOffsets(option="endingOffsets", offsets={ORDERS_0: -2}))


def test_a_query_does_not_end_before_it_begins() -> None:
    late, early = AtTime(option="startingTimestamp", timestamp_ms=2), AtTime(option="endingTimestamp", timestamp_ms=1)
    with pytest.raises(OptionError, match="is 2, which is after 'endingTimestamp', 1"):
        check_batch_limits(late, early)
    with pytest.raises(OptionError, match="is 2 for orders-0, which is after"):
        check_batch_limits(
            AtTimes(option="startingOffsetsByTimestamp", timestamps_ms={ORDERS_0: 2}),
            AtTimes(option="endingOffsetsByTimestamp", timestamps_ms={ORDERS_0: 1}),
        )
    first = SpecificOffsets(option="startingOffsets", offsets={ORDERS_0: 30})
    with pytest.raises(OptionError, match="'startingOffsets' is 30 for orders-0, which is after 'endingOffsets', 10"):
        check_batch_limits(first, SpecificOffsets(option="endingOffsets", offsets={ORDERS_0: 10}))
    for last in (30, -1):
        check_batch_limits(first, SpecificOffsets(option="endingOffsets", offsets={ORDERS_0: last}))
