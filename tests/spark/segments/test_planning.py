"""Planning: cuts follow each other without a gap, and offsets that are not there are said to be."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.model import TopicPartition
from barnabas.spark.errors import DataLossError, OptionError, PipelineError
from barnabas.spark.segments.options import read_read_options
from barnabas.spark.segments.planning import (
    ByteRange,
    OffsetRange,
    bytes_per_task,
    choose,
    cut_positions,
    offset_ranges,
    pack,
)

ORDERS, MORE, OWN = TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("__consumer_offsets", 0)
PAID = TopicPartition("payments", 0)


@given(
    positions=st.lists(st.integers(1, 10_000), unique=True).map(sorted),
    size=st.integers(1, 10_000),
    bytes_max=st.integers(1, 5_000),
)
def test_cuts_are_places_in_order_and_pieces_are_as_small_as_the_index_allows(
    positions: list[int], size: int, bytes_max: int
) -> None:
    cuts = cut_positions(positions, 0, size, bytes_max)
    assert set(cuts) <= set(positions)
    places = [0, *cuts, size]
    assert places == sorted(set(places))
    for start, end in pairwise(places):
        assert not any(start + bytes_max <= position < end for position in positions)


@given(sizes=st.lists(st.integers(1, 100)), bytes_max=st.integers(1, 300))
def test_packing_keeps_every_range_once_and_in_order(sizes: list[int], bytes_max: int) -> None:
    ranges = [
        ByteRange(path=str(number), start_position=0, end_position=size, start_offset=0, end_offset=1)
        for number, size in enumerate(sizes)
    ]
    tasks = pack(ranges, bytes_max)
    assert [each for task in tasks for each in task] == ranges
    assert all(len(task) == 1 or sum(each.size for each in task) <= bytes_max for task in tasks)


def options(**given: Any) -> Any:
    return read_read_options({"path": "/data", **given})


def test_enough_tasks_and_none_too_large() -> None:
    assert bytes_per_task(1000, options(minPartitions="3")) == 334
    assert bytes_per_task(1000, options(maxBytesPerPartition="10")) == 10
    assert bytes_per_task(0, options()) == 1


@pytest.mark.parametrize(
    ("given_options", "chosen"),
    [
        ({}, [ORDERS, MORE, PAID]),
        ({"subscribe": "payments"}, [PAID]),
        ({"subscribe": "__consumer_offsets"}, [OWN]),
        ({"subscribePattern": "ord.*"}, [ORDERS, MORE]),
        ({"subscribePattern": "ord"}, []),
        ({"assign": '{"orders": [1]}'}, [MORE]),
    ],
)
def test_what_is_asked_for_is_chosen(given_options: Mapping[str, str], chosen: list[TopicPartition]) -> None:
    assert choose([PAID, OWN, MORE, ORDERS], options(**given_options), ["__consumer_offsets"]) == chosen


@pytest.mark.parametrize(
    ("given_options", "words"),
    [
        ({"subscribe": "orders,other"}, "names topic 'other', which is not in /data"),
        ({"assign": '{"orders": [7]}'}, "names orders-7, which is not in /data"),
    ],
)
def test_what_is_not_there_is_named(given_options: Mapping[str, str], words: str) -> None:
    with pytest.raises(PipelineError, match=words):
        choose([ORDERS], options(**given_options), [])


BOUNDS = {ORDERS: OffsetRange(start_offset=10, end_offset=20)}


def ranges(**given: str) -> tuple[int, int]:
    found = offset_ranges(BOUNDS, options(**given))[ORDERS]
    return found.start_offset, found.end_offset


def test_offsets_by_name_and_by_number() -> None:
    assert ranges() == (10, 20)
    assert ranges(startingOffsets='{"orders": {"0": 12}}', endingOffsets='{"orders": {"0": 15}}') == (12, 15)
    assert ranges(startingOffsets='{"orders": {"0": -2}}', endingOffsets='{"orders": {"0": -1}}') == (10, 20)


def test_offsets_that_are_not_there_are_an_error_unless_loss_is_allowed() -> None:
    for given_options in ({"startingOffsets": '{"orders": {"0": 3}}'}, {"endingOffsets": '{"orders": {"0": 21}}'}):
        with pytest.raises(DataLossError, match="orders-0 has offsets from 10 to 20, but"):
            ranges(**given_options)
        assert ranges(**given_options, failOnDataLoss="false") == (10, 20)
    assert ranges(startingOffsets='{"orders": {"0": 20}}') == (20, 20)
    with pytest.raises(OptionError, match="is after its end at 20"):
        ranges(startingOffsets='{"orders": {"0": 25}}')


def test_offsets_name_just_the_partitions_that_are_read() -> None:
    with pytest.raises(OptionError, match="has no offset for orders-0"):
        ranges(startingOffsets="{}")
    with pytest.raises(OptionError, match="has an offset for orders-1, which is not read"):
        ranges(endingOffsets='{"orders": {"0": 15, "1": 15}}')
