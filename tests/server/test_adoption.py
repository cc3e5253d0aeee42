"""Folders that were there before: Kafka's, those of another order, those whose disk is missing, and strays."""

import shutil
from collections.abc import Callable
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from barnabas.clock import SystemClock
from barnabas.config import LogConfig, LogManagerConfig
from barnabas.embedded import Broker, BrokerFailedError
from barnabas.model import TopicPartition
from barnabas.server.broker_server import METADATA_FILE
from barnabas.storage.files import OsFiles
from barnabas.storage.log_manager import LogManager, LogManagerOptions
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.producers import InitProducerIdRequest
from tests.broker.asking import connected, create_topic, fetch, incremental, offsets_of, produce, topic_changes
from tests.broker.turning import until, until_on_loop
from tests.storage.builders import sent_by


def now() -> int:
    return SystemClock().now_ms()


def foreign_folder(folder: Path, topics: dict[str, UUID], node_id: int = 0) -> None:
    """A folder as another broker leaves it: a log a topic, with a record of the producer 7, and no metadata of ours."""
    manager = LogManager(
        LogManagerOptions(
            files=OsFiles(),
            clock=SystemClock(),
            config=LogManagerConfig(log_dirs=(str(folder),)),
            topic_config=lambda _: LogConfig(),
            identity={"node.id": str(node_id), "cluster.id": "of-another-broker"},
        )
    )
    manager.start()
    for name, topic_id in topics.items():
        log = manager.get_or_create_log(TopicPartition(name, 0), topic_id)
        log.append_as_leader(sent_by(7, 0, timestamp=now()), 0)
    manager.shutdown()


def next_producer_id(broker: Broker) -> int:
    with connected(broker) as connection:
        answer = connection.request(InitProducerIdRequest(transactional_id=None))
        assert answer.error_code == ErrorCode.NONE
        producer_id: int = answer.producer_id
        return producer_id


def test_no_producer_gets_an_id_that_an_adopted_log_remembers(tmp_path: Path) -> None:
    foreign_folder(tmp_path, {"orders": uuid4()})
    with Broker(data=tmp_path, in_process=True) as broker:
        assert next_producer_id(broker) > 7
        with connected(broker) as connection:
            answer = produce(connection, "orders", sent_by(next_producer_id(broker), 0, timestamp=now()))
            assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 1)
            assert offsets_of(fetch(connection, "orders", 0)) == [0, 1]


def test_a_start_that_is_refused_leaves_nothing_behind(tmp_path: Path) -> None:
    topic_id = uuid4()
    foreign_folder(tmp_path, {"orders": topic_id}, node_id=5)
    with pytest.raises(BrokerFailedError, match=r"node\.id=5"):
        Broker(data=tmp_path, in_process=True)
    assert not (tmp_path / METADATA_FILE).exists()
    with Broker(data=tmp_path, in_process=True, settings={"node.id": 5}) as broker:
        services = broker.server.services
        assert services.cache.topics["orders"].topic_id == topic_id
        assert services.cluster_id == "of-another-broker"


def test_an_adoption_that_was_cut_off_goes_on_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign_folder(tmp_path, {f"topic-{number}": uuid4() for number in range(5)})
    with monkeypatch.context() as patch:
        patch.setattr("barnabas.cluster.controller.Controller.adoption_finished", _fail)
        with pytest.raises(BrokerFailedError, match="cut off"):
            Broker(data=tmp_path, in_process=True)
    with Broker(data=tmp_path, in_process=True) as broker:
        assert sorted(broker.server.services.cache.topics) == [f"topic-{number}" for number in range(5)]
    # From now on what is found and not known is not adopted any more.
    shutil.copytree(tmp_path / "topic-0-0", tmp_path / "copied-0")
    with Broker(data=tmp_path, in_process=True) as broker:
        assert "copied" not in broker.server.services.cache.topics
    assert list(tmp_path.glob("copied-0.*-stray"))


def _fail(_: object, done: Callable[[ApiError], None]) -> None:
    done(ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "cut off here"))


def test_a_new_topic_does_not_get_the_records_of_an_old_one(tmp_path: Path) -> None:
    with Broker(data=tmp_path, in_process=True) as broker, connected(broker) as connection:
        create_topic(connection, "other")
    foreign = tmp_path.with_name("foreign")
    foreign_folder(foreign, {"orders": uuid4()})
    shutil.copytree(foreign / "orders-0", tmp_path / "orders-0")
    with Broker(data=tmp_path, in_process=True) as broker, connected(broker) as connection:
        create_topic(connection, "orders")
        assert offsets_of(fetch(connection, "orders", 0)) == []
    assert len(list(tmp_path.glob("orders-0.*-stray"))) == 1


def test_a_log_directory_that_is_not_mounted_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    folders = f"{tmp_path}/a,{tmp_path}/b"
    with Broker(data=folders, in_process=True) as broker, connected(broker) as connection:
        create_topic(connection, "orders", 2)
        for partition in range(2):
            produce(connection, "orders", sent_by(1, 0, timestamp=now()), partition)
    (tmp_path / "b").rename(tmp_path / "away")
    with pytest.raises(BrokerFailedError, match="is new: is its disk mounted"):
        Broker(data=folders, in_process=True)
    shutil.rmtree(tmp_path / "b")
    (tmp_path / "away").rename(tmp_path / "b")
    with Broker(data=folders, in_process=True) as broker, connected(broker) as connection:
        assert [offsets_of(fetch(connection, "orders", 0, partition)) for partition in range(2)] == [[0], [0]]


def test_a_log_directory_is_added_without_questions(tmp_path: Path) -> None:
    with Broker(data=f"{tmp_path}/a", in_process=True) as broker, connected(broker) as connection:
        create_topic(connection, "orders")
    with Broker(data=f"{tmp_path}/a,{tmp_path}/b", in_process=True) as broker, connected(broker) as connection:
        create_topic(connection, "more", 2)


def test_log_directories_in_another_order_are_refused(tmp_path: Path) -> None:
    with Broker(data=f"{tmp_path}/a,{tmp_path}/b", in_process=True):
        pass
    with pytest.raises(BrokerFailedError, match="put the folder that has the metadata first"):
        Broker(data=f"{tmp_path}/b,{tmp_path}/a", in_process=True)


def test_kafkas_own_metadata_topic_is_left_alone(tmp_path: Path) -> None:
    foreign_folder(tmp_path, {"orders": uuid4()})
    (tmp_path / "__cluster_metadata-0").mkdir()
    with Broker(data=tmp_path, in_process=True) as broker, connected(broker) as connection:
        answer = produce(connection, "__cluster_metadata", sent_by(1, 0, timestamp=now()))
        assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        with pytest.raises(AssertionError, match=r"INVALID_TOPIC|17"):
            create_topic(connection, "__cluster_metadata")
    assert list((tmp_path / "__cluster_metadata-0").iterdir()) == []


def test_what_kafka_wrote_is_not_deleted_before_its_settings_are_known(tmp_path: Path) -> None:
    """Its topic may have been kept for ever, or compacted; its files do not say."""
    foreign_folder(tmp_path, {"orders": uuid4()})
    settings = {"log.retention.ms": 0, "log.retention.bytes": 0, "log.initial.task.delay.ms": 0}
    settings["log.retention.check.interval.ms"] = 1
    with Broker(in_process=True, data=tmp_path, settings=settings) as broker:
        image = broker.server.services.cache.topics["orders"]
        assert image.config == {"retention.ms": "-1", "retention.bytes": "-1"}
        until_on_loop(broker, lambda: not broker.server.services.log_retention.is_running)
        with connected(broker) as connection:
            assert offsets_of(fetch(connection, "orders", 0)) == [0]
            changes = topic_changes("orders", ("retention.ms", 1, None))
            assert connection.request(incremental(changes)).responses[0].error_code == ErrorCode.NONE
            until(lambda: fetch(connection, "orders", 0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE)
