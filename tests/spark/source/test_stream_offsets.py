"""Places of a stream as JSON, and what lies between two of them."""

import json
from uuid import UUID

import pytest

from barnabas.model import ZERO_TOPIC_ID, TopicPartition
from barnabas.spark.errors import PipelineError
from barnabas.spark.source.stream_offsets import (
    StreamOffset,
    appeared,
    from_json,
    progress_between,
    ranges_between,
    to_json,
)

OLD, NEW = UUID(int=1), UUID(int=2)


def tp(partition: int, topic: str = "orders") -> TopicPartition:
    return TopicPartition(topic, partition)


def place(offsets: dict[int, int], topic_id: UUID = OLD) -> StreamOffset:
    return StreamOffset(
        offsets={tp(partition): offset for partition, offset in offsets.items()}, topic_ids={"orders": topic_id}
    )


def test_the_text_has_one_order() -> None:
    one = StreamOffset(offsets={tp(10): 1, tp(9): 2, tp(0, "a"): 3}, topic_ids={"orders": OLD, "a": NEW})
    other = StreamOffset(offsets={tp(0, "a"): 3, tp(9): 2, tp(10): 1}, topic_ids={"a": NEW, "orders": OLD})
    assert json.dumps(to_json(one)) == json.dumps(to_json(other))
    assert json.dumps(to_json(one)) == (
        '{"a": {"id": "00000000-0000-0000-0000-000000000002", "0": 3}, '
        '"orders": {"id": "00000000-0000-0000-0000-000000000001", "9": 2, "10": 1}}'
    )


def test_a_place_survives_the_checkpoint() -> None:
    began = place({0: 3})
    for each in (place({0: 5, 1: 7}), StreamOffset(offsets={}), StreamOffset(offsets=began.offsets, is_initial=True)):
        assert from_json(json.loads(json.dumps(to_json(each)))) == each
    end = StreamOffset(offsets={tp(0): 9}, topic_ids={"orders": OLD}, began=began)
    assert from_json(json.loads(json.dumps(to_json(end)))) == end
    assert end.is_same_place(place({0: 9}))
    assert not end.is_same_place(place({0: 9}, NEW))


def test_a_checkpoint_of_sparks_own_source_is_read() -> None:
    found = from_json({"orders": {"1": 7, "0": 5}})
    assert found.offsets == {tp(0): 5, tp(1): 7}
    assert found.topic_id("orders") == ZERO_TOPIC_ID
    # No id is no other id.
    assert progress_between(found, place({0: 6, 1: 7}), {}).losses == ()


@pytest.mark.parametrize("value", [{"index": 5}, {"orders": {"first": 5}}, {"orders": {"0": "x"}}, {"orders": None}])
def test_a_checkpoint_of_another_source_is_refused(value: dict[str, object]) -> None:
    with pytest.raises(PipelineError, match="offsets that are not of this source"):
        from_json(value)


def test_what_lies_between_two_places() -> None:
    start, end = place({0: 5, 1: 7}), place({0: 8, 1: 7, 2: 4})
    assert appeared(start, end) == [tp(2)]
    progress = progress_between(start, end, {tp(2): 0})
    assert progress.starts == {tp(0): 5, tp(1): 7, tp(2): 0}
    assert progress.losses == ()
    found = ranges_between(progress.starts, end)
    assert [(each.partition, each.start_offset, each.end_offset, each.topic_id) for each in found] == [
        (tp(0), 5, 8, OLD),
        (tp(1), 7, 7, OLD),
        (tp(2), 0, 4, OLD),
    ]


def test_a_recreated_topic_is_noticed_and_begins_anew() -> None:
    start, end = place({0: 5}), place({0: 8}, NEW)
    assert appeared(start, end) == [tp(0)]
    progress = progress_between(start, end, {tp(0): 0})
    assert progress.losses == ("topic 'orders' was deleted and created again since it was read",)
    assert progress.starts == {tp(0): 0}


def test_losses_have_a_clause_each() -> None:
    progress = progress_between(place({0: 5, 1: 7, 2: 9}), place({0: 4, 1: 8, 3: 6}), {tp(3): 2})
    assert progress.losses == (
        "orders-2, which was read to offset 9, is gone",
        "orders-0 ends at offset 4, but was read to 5 before",
        "orders-3 is new, but begins at offset 2 instead of 0",
    )
    assert progress.starts == {tp(0): 5, tp(1): 7, tp(3): 2}
