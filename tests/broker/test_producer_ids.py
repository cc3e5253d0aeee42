"""Producer ids come one by one from blocks, in the order they were asked for."""

from collections.abc import Callable
from typing import Any, cast

from barnabas.broker.producer_ids import ProducerIds
from barnabas.cluster.controller import Controller
from barnabas.wire.errors import ApiError, ErrorCode


class Blocks:
    """A controller that hands out blocks when the test says so."""

    def __init__(self) -> None:
        self.asked: list[Callable[[Any], None]] = []

    def allocate_producer_ids(self, done: Callable[[Any], None]) -> None:
        self.asked.append(done)


def producer_ids() -> tuple[Blocks, ProducerIds]:
    blocks = Blocks()
    return blocks, ProducerIds(cast(Controller, blocks))


def test_no_id_is_handed_out_before_its_block_is_there() -> None:
    blocks, ids = producer_ids()
    found: list[int | ApiError] = []
    for _ in range(3):
        ids.next(found.append)
    assert found == []
    assert len(blocks.asked) == 1
    blocks.asked[0](range(10, 15))
    assert found == [10, 11, 12]
    ids.next(found.append)
    assert found == [10, 11, 12, 13]


def test_those_for_whom_a_block_has_no_id_left_wait_for_the_next() -> None:
    blocks, ids = producer_ids()
    found: list[int | ApiError] = []
    for _ in range(5):
        ids.next(found.append)
    blocks.asked.pop()(range(2))
    assert found == [0, 1]
    assert len(blocks.asked) == 1
    blocks.asked.pop()(range(100, 102))
    assert found == [0, 1, 100, 101]
    blocks.asked.pop()(range(200, 300))
    assert found == [0, 1, 100, 101, 200]


def test_nobody_overtakes_those_who_wait() -> None:
    blocks, ids = producer_ids()
    found: list[int | ApiError] = []

    def ask_again(first: int | ApiError) -> None:
        found.append(first)
        ids.next(found.append)

    ids.next(ask_again)
    ids.next(found.append)
    blocks.asked[0](range(10))
    assert sorted(cast(list[int], found)) == [0, 1, 2]
    assert len(set(found)) == 3


def test_a_failure_is_told_to_all_who_wait_and_the_next_asks_again() -> None:
    blocks, ids = producer_ids()
    found: list[int | ApiError] = []
    ids.next(found.append)
    ids.next(found.append)
    failure = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk")
    blocks.asked.pop()(failure)
    assert found == [failure, failure]
    ids.next(found.append)
    blocks.asked.pop()(range(7, 8))
    assert found[2] == 7
