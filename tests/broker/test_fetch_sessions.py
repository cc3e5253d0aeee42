"""Fetch sessions: what is remembered, what is told again, and every mistake a client can make with them."""

import pytest

from barnabas.broker.fetch_sessions import (
    EPOCH_MAX,
    EVICTION_SECONDS,
    FetchContext,
    FetchSessionCache,
    FetchTarget,
    topic_names,
)
from barnabas.clock import ManualClock
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.fetch import EpochEndOffset, FetchRequest, FetchTopic, ForgottenTopic, PartitionData
from barnabas.wire.schema import ZERO_UUID
from tests.broker.asking import fetch_request
from tests.storage.builders import refused

TOPIC_ID = bytes(range(16))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def cache(clock: ManualClock) -> FetchSessionCache:
    return FetchSessionCache(clock, slots=2)


def full(*partitions: int, session_id: int = 0) -> FetchRequest:
    return fetch_request("orders", dict.fromkeys(partitions, 0), session_id=session_id, session_epoch=0)


def begun(cache: FetchSessionCache, *partitions: int) -> int:
    context = cache.context_for(full(*partitions), uses_topic_ids=False)
    assert not context.is_incremental
    return context.session_id


def going_on(session_id: int, epoch: int, offsets: dict[int, int] | None = None) -> FetchRequest:
    return fetch_request("orders", offsets or {}, session_id=session_id, session_epoch=epoch)


def partitions_of(context: FetchContext) -> list[int]:
    return [target.partition for target in context.targets]


def told(context: FetchContext, **fields: int | bytes) -> list[int]:
    """Which partitions an answer names, when this is found in each."""
    answers = [
        (target, PartitionData(**{"partition_index": target.partition, "records": b"", **fields}))  # type: ignore[arg-type]
        for target in context.targets
    ]
    return [data.partition_index for _, data in context.answered(answers)]


def test_a_session_remembers_its_partitions(cache: FetchSessionCache) -> None:
    session_id = begun(cache, 0, 1)
    assert session_id > 0
    context = cache.context_for(going_on(session_id, 1, {1: 77}), uses_topic_ids=False)
    assert context.is_incremental
    assert context.session_id == session_id
    assert [(target.partition, target.fetch_offset) for target in context.targets] == [(0, 0), (1, 77)]


def test_partitions_are_added_and_forgotten(cache: FetchSessionCache) -> None:
    session_id = begun(cache, 0, 1)
    request = going_on(session_id, 1, {2: 5})
    request.forgotten_topics_data = [ForgottenTopic(topic="orders", partitions=[0, 9])]
    assert partitions_of(cache.context_for(request, uses_topic_ids=False)) == [1, 2]
    assert partitions_of(cache.context_for(going_on(session_id, 2), uses_topic_ids=False)) == [1, 2]


def test_a_session_that_forgets_everything_ends(cache: FetchSessionCache) -> None:
    session_id = begun(cache, 0)
    request = going_on(session_id, 1)
    request.forgotten_topics_data = [ForgottenTopic(topic="orders", partitions=[0])]
    context = cache.context_for(request, uses_topic_ids=False)
    assert (context.session_id, context.targets) == (0, [])
    assert len(cache) == 0


def test_an_incremental_answer_names_only_what_is_new(cache: FetchSessionCache) -> None:
    session_id = begun(cache, 0, 1)
    first = cache.context_for(going_on(session_id, 1), uses_topic_ids=False)
    assert told(first, high_watermark=5, log_start_offset=0) == [0, 1]
    for epoch, fields, expected in [
        (2, {"high_watermark": 5, "log_start_offset": 0}, []),
        (3, {"high_watermark": 6, "log_start_offset": 0}, [0, 1]),
        (4, {"high_watermark": 6, "log_start_offset": 3}, [0, 1]),
        (5, {"high_watermark": 6, "log_start_offset": 3, "records": b"x"}, [0, 1]),
        (6, {"high_watermark": 6, "log_start_offset": 3, "error_code": 1}, [0, 1]),
        # After an error the partition is told of once more, and then no more.
        (7, {"high_watermark": 6, "log_start_offset": 3}, [0, 1]),
        (8, {"high_watermark": 6, "log_start_offset": 3}, []),
    ]:
        context = cache.context_for(going_on(session_id, epoch), uses_topic_ids=False)
        assert told(context, **fields) == expected, epoch  # type: ignore[arg-type]


def test_a_full_answer_names_everything(cache: FetchSessionCache) -> None:
    context = cache.context_for(full(0, 1), uses_topic_ids=False)
    assert told(context, high_watermark=-1, log_start_offset=-1) == [0, 1]


def test_a_diverging_epoch_is_always_told() -> None:
    target = FetchTarget("orders", 0, told_high_watermark=3, told_log_start_offset=0)
    data = PartitionData(high_watermark=3, log_start_offset=0, records=b"")
    assert not target.is_news(data)
    data.diverging_epoch = EpochEndOffset(epoch=1, end_offset=0)
    assert target.is_news(data)


def test_partitions_that_had_records_come_last_next_time(cache: FetchSessionCache) -> None:
    session_id = begun(cache, 0, 1, 2)
    context = cache.context_for(going_on(session_id, 1), uses_topic_ids=False)
    context.answered(
        [(target, PartitionData(records=b"x" if target.partition == 0 else b"")) for target in context.targets]
    )
    assert partitions_of(cache.context_for(going_on(session_id, 2), uses_topic_ids=False)) == [1, 2, 0]


def test_a_session_that_is_not_known_is_refused(cache: FetchSessionCache) -> None:
    with refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND):
        cache.context_for(going_on(12345, 1), uses_topic_ids=False)


@pytest.mark.parametrize("epoch", [2, 3, 100])
def test_a_fetch_out_of_turn_is_refused_and_the_session_stays(cache: FetchSessionCache, epoch: int) -> None:
    session_id = begun(cache, 0)
    with refused(ErrorCode.INVALID_FETCH_SESSION_EPOCH):
        cache.context_for(going_on(session_id, epoch), uses_topic_ids=False)
    assert cache.context_for(going_on(session_id, 1), uses_topic_ids=False).is_incremental


def test_a_repeated_fetch_is_refused(cache: FetchSessionCache) -> None:
    session_id = begun(cache, 0)
    cache.context_for(going_on(session_id, 1), uses_topic_ids=False)
    with refused(ErrorCode.INVALID_FETCH_SESSION_EPOCH):
        cache.context_for(going_on(session_id, 1), uses_topic_ids=False)


def test_a_session_goes_on_with_the_names_it_began_with(cache: FetchSessionCache) -> None:
    session_id = begun(cache, 0)
    with refused(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR):
        cache.context_for(going_on(session_id, 1), uses_topic_ids=True)


def test_the_epoch_begins_again_at_1_after_the_largest(cache: FetchSessionCache) -> None:
    session_id = begun(cache, 0)
    cache._sessions[session_id].epoch = EPOCH_MAX
    cache.context_for(going_on(session_id, EPOCH_MAX), uses_topic_ids=False)
    assert cache.context_for(going_on(session_id, 1), uses_topic_ids=False).is_incremental


def test_the_final_epoch_ends_a_session_and_is_served(cache: FetchSessionCache) -> None:
    session_id = begun(cache, 0)
    context = cache.context_for(going_on(session_id, -1, {3: 0}), uses_topic_ids=False)
    assert (context.session_id, partitions_of(context)) == (0, [3])
    with refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND):
        cache.context_for(going_on(session_id, 1), uses_topic_ids=False)


def test_a_client_that_begins_anew_gives_up_its_old_session(cache: FetchSessionCache) -> None:
    old = begun(cache, 0)
    new = cache.context_for(full(1, session_id=old), uses_topic_ids=False).session_id
    assert new not in (0, old)
    assert len(cache) == 1


def test_without_room_a_client_is_served_without_a_session(cache: FetchSessionCache, clock: ManualClock) -> None:
    first, second = begun(cache, 0), begun(cache, 0)
    assert begun(cache, 0) == 0
    clock.advance(round(EVICTION_SECONDS * 1000) - 1)
    cache.context_for(going_on(first, 1), uses_topic_ids=False)
    assert begun(cache, 0) == 0
    clock.advance(1)
    # The second was idle for two minutes, the first was not.
    assert begun(cache, 0) > 0
    assert cache.evictions == 1
    with refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND):
        cache.context_for(going_on(second, 1), uses_topic_ids=False)
    assert cache.context_for(going_on(first, 2), uses_topic_ids=False).is_incremental


def test_no_slots_are_no_sessions(clock: ManualClock) -> None:
    assert begun(FetchSessionCache(clock, slots=0), 0) == 0


def test_two_sessions_never_have_the_same_id(cache: FetchSessionCache, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = iter([5, 5, 5, 6])
    monkeypatch.setattr("random.randint", lambda low, high: next(numbers))
    assert begun(cache, 0) == 5
    assert begun(cache, 0) == 6


def test_topics_are_known_by_id_where_they_are_named_by_id(cache: FetchSessionCache) -> None:
    request = full(0, 1)
    request.topics = [FetchTopic(topic_id=TOPIC_ID, partitions=request.topics[0].partitions)]
    context = cache.context_for(request, uses_topic_ids=True)
    assert [target.topic for target in context.targets] == [TOPIC_ID, TOPIC_ID]
    again = FetchRequest(session_id=context.session_id, session_epoch=1)
    again.forgotten_topics_data = [ForgottenTopic(topic_id=TOPIC_ID, partitions=[0])]
    assert partitions_of(cache.context_for(again, uses_topic_ids=True)) == [1]


def test_an_answer_has_the_name_that_was_asked_by() -> None:
    assert topic_names("orders") == ("orders", ZERO_UUID)
    assert topic_names(TOPIC_ID) == ("", TOPIC_ID)
