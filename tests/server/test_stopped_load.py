"""Bulk load into the directory of a stopped broker."""

from pathlib import Path

import pytest

from barnabas.broker.bulk_loads import LoadRequest
from barnabas.embedded import Broker
from barnabas.model import TopicPartition
from barnabas.server.broker_server import StartError
from barnabas.server.stopped_load import adopt_stopped
from barnabas.storage.checkpoint import CLEAN_SHUTDOWN_MARKER
from barnabas.storage.files import DirectoryLockedError, OsFiles
from barnabas.wire.errors import ApiError
from tests.broker.asking import connected, create_topic, fetch, offsets_of, produce
from tests.storage.builders import batch_of
from tests.storage.loading import stage

REQUEST = LoadRequest(load_id="one", topic="orders", partitions=(0, 1))


def test_a_load_is_adopted_while_the_broker_is_stopped(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    folders[0].mkdir()
    with Broker(in_process=True, data=",".join(map(str, folders)), settings={"node.id": 5}) as broker:
        with connected(broker) as connection:
            create_topic(connection, "orders", 2)
            produce(connection, "orders", batch_of(2))
        for path in tmp_path.glob("?/orders-?"):
            name = TopicPartition("orders", int(path.name[-1]))
            stage(OsFiles(), str(path), name, "one", [[batch_of(3)], [batch_of(1)]])
        paths = [str(folder) for folder in reversed(folders)]
        with pytest.raises(DirectoryLockedError, match="is in use by"):
            adopt_stopped(paths, REQUEST)
        broker.stop()
        load = adopt_stopped(paths, REQUEST)
        assert [(one.base_offset, one.end_offset) for one in load.partitions] == [(2, 6), (0, 4)]
        assert all((folder / CLEAN_SHUTDOWN_MARKER).exists() for folder in folders)
        with pytest.raises(ApiError, match="load one was adopted before"):
            adopt_stopped(paths, REQUEST)
        broker.start()
        with connected(broker) as connection:
            assert [offsets_of(fetch(connection, "orders", at)) for at in (0, 2, 5)] == [[0, 1], [2, 3, 4], [5]]
            assert offsets_of(fetch(connection, "orders", 0, 1)) == list(range(3))


def test_a_load_deletes_nothing(tmp_path: Path) -> None:
    """The broker that adopts has not the settings of the one that is stopped, by which these records may stay."""
    with Broker(in_process=True, data=tmp_path, settings={"log.retention.ms": -1, "log.segment.bytes": 100}) as broker:
        with connected(broker) as connection:
            create_topic(connection, "orders", 2)
            for _ in range(3):
                produce(connection, "orders", batch_of(1))
        for index in range(2):
            name = TopicPartition("orders", index)
            stage(OsFiles(), str(tmp_path / str(name)), name, "one", [[batch_of(1)], [batch_of(1)]])
        broker.stop()
        adopt_stopped([str(tmp_path)], REQUEST)
        assert not list(tmp_path.glob("*/*.deleted"))
        broker.start()
        with connected(broker) as connection:
            assert [offsets_of(fetch(connection, "orders", at)) for at in range(5)] == [[0], [1], [2], [3], [4]]


def test_a_directory_that_no_broker_of_ours_has_used_is_not_taken_over(tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    with pytest.raises(StartError, match=r"is no data directory of a Barnabas broker: it has no metadata\.sqlite"):
        adopt_stopped([str(tmp_path)], REQUEST)
    assert [path.name for path in tmp_path.iterdir()] == ["orders-0"]
