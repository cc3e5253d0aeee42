"""Markers: they are written again until they are there, and a partition that is gone needs none."""

from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.broker.internal_topics import GROUP_TOPIC
from barnabas.broker.partition import Partition
from barnabas.broker.transaction_markers import EndMarker
from barnabas.embedded import Broker
from barnabas.model import TopicPartition
from barnabas.wire.errors import ApiError, ErrorCode
from tests.broker.asking import connected, create_topic, fetch
from tests.broker.coordinating import find
from tests.broker.turning import append, on_loop, until
from tests.storage.builders import sent_by

NOW = 1_700_000_000_000


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A broker; every test has a topic of its own."""
    with Broker(in_process=True) as broker:
        yield broker


def open_transaction(broker: Broker, topic: str) -> EndMarker:
    with connected(broker) as connection:
        create_topic(connection, topic)
    append(broker, topic, sent_by(7, 0, 2, transactional=True, timestamp=NOW))
    return EndMarker(7, 0, True, 0)


def write(broker: Broker, marker: EndMarker, topic: str, *, until_done: bool) -> list[Any]:
    told: list[Any] = []
    markers = broker.server.services.transactions.markers
    name = TopicPartition(topic, 0)
    if until_done:
        on_loop(broker, lambda: markers.write_until_done(marker, [name], told.extend, lambda: True))
    else:
        on_loop(broker, lambda: markers.write(marker, name, lambda _, code: told.append(code)))
    return told


def last_stable(broker: Broker, topic: str) -> int:
    with connected(broker) as connection:
        return int(fetch(connection, topic, 0, isolation_level=1).last_stable_offset)


def test_a_marker_decides_the_transaction(broker: Broker) -> None:
    marker = open_transaction(broker, "decided")
    assert last_stable(broker, "decided") == 0
    assert write(broker, marker, "decided", until_done=True) == [TopicPartition("decided", 0)]
    assert last_stable(broker, "decided") == 3


def test_a_partition_that_is_gone_needs_no_marker(broker: Broker) -> None:
    marker = EndMarker(7, 0, True, 0)
    assert write(broker, marker, "nowhere", until_done=False) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert write(broker, marker, "nowhere", until_done=True) == [TopicPartition("nowhere", 0)]


def test_a_marker_of_a_producer_that_was_replaced_is_refused(broker: Broker) -> None:
    open_transaction(broker, "replaced")
    append(broker, "replaced", sent_by(7, 0, 1, epoch=3, transactional=True, timestamp=NOW))
    old = EndMarker(7, 2, True, 0)
    assert write(broker, old, "replaced", until_done=False) == [ErrorCode.INVALID_PRODUCER_EPOCH]


def test_a_marker_that_can_not_be_written_is_written_later(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    marker = open_transaction(broker, "later")
    append_own = Partition.append_own
    failures = iter([ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER])

    def failing(partition: Any, batch: Any) -> int:
        code = next(failures, None)
        if code is not None:
            raise ApiError(code, "not now")
        return append_own(partition, batch)

    monkeypatch.setattr(Partition, "append_own", failing)
    told = write(broker, marker, "later", until_done=True)
    until(lambda: told)
    assert last_stable(broker, "later") == 3


def test_nothing_is_tried_again_for_a_coordinator_that_is_gone(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one writes the same marker, and ours would end the transaction after it: the epoch may be the same."""
    marker = open_transaction(broker, "gone")
    markers = broker.server.services.transactions.markers
    attempts: list[Any] = []

    def failing(partition: Any, batch: Any) -> int:
        attempts.append(partition)
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "not now")

    monkeypatch.setattr(Partition, "append_own", failing)
    asked: list[bool] = []

    def is_wanted() -> bool:
        asked.append(len(attempts) < 2)
        return asked[-1]

    name = TopicPartition("gone", 0)
    told: list[TopicPartition] = []
    on_loop(broker, lambda: markers.write_until_done(marker, [name], told.extend, is_wanted))
    until(lambda: asked == [True, False])
    assert (len(attempts), told) == (2, [])


def test_the_group_coordinator_is_told_of_its_partitions(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, int, bool]] = []
    groups = broker.server.services.groups
    monkeypatch.setattr(groups, "complete_transaction", lambda *args: told.append(args))
    with connected(broker) as connection:
        find(connection, "g")
    on_loop(
        broker,
        lambda: broker.server.services.transactions.markers.write(
            EndMarker(7, 0, False, 0), TopicPartition(GROUP_TOPIC, 3), lambda _, code: None
        ),
    )
    assert told == [(3, 7, False)]
