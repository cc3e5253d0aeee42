"""Where a load goes and who adopts it; and the sentences when nobody can."""

from pathlib import Path

import pytest

from barnabas.embedded import Broker
from barnabas.spark.errors import PipelineError
from barnabas.spark.segments.adopting import adopt, adopted_ranges, find_target
from barnabas.spark.segments.options import read_write_options
from tests.broker.asking import connected, create_topic
from tests.kafka_peer.peer import KafkaPeer
from tests.kafka_peer.populate import create_topics, wait_until


def options_of(broker: Broker, **more: str) -> dict[str, str]:
    return {"topic": "orders", "kafka.bootstrap.servers": broker.bootstrap_servers, **more}


def has_folders(given: dict[str, str]) -> bool:
    try:
        find_target(read_write_options(given), given)
    except PipelineError as error:
        assert "is in no directory" in str(error)
        return False
    return True


def test_a_running_broker_says_where_its_partitions_are(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    folders[0].mkdir()
    with Broker(in_process=True, data=",".join(map(str, folders)), settings={"log.retention.ms": -1}) as broker:
        with connected(broker) as connection:
            create_topic(connection, "orders", 3, {"max.message.bytes": 5000})
        given = options_of(broker)
        target = find_target(read_write_options(given), given)
        assert [Path(folder).name for folder in target.folders] == ["orders-0", "orders-1", "orders-2"]
        assert {Path(folder).parent for folder in target.folders} == set(folders)
        assert target.max_message_bytes == 5000
        given = options_of(broker, path=f"{folders[1]},{folders[0]}")
        assert find_target(read_write_options(given), given).folders == target.folders
        assert adopted_ranges(given, "one") == []
        with pytest.raises(PipelineError, match=r"\.load-one does not exist: load one has nothing for orders-0"):
            adopt(target, read_write_options(given), "one", [0])
        given = options_of(broker, path=str(folders[0]))
        with pytest.raises(PipelineError, match=r"has 3 partitions, but|are missing in"):
            find_target(read_write_options(given), given)
        given = options_of(broker, topic="other")
        with pytest.raises(PipelineError, match="topic 'other' can not be loaded: there is no topic 'other'"):
            find_target(read_write_options(given), given)
        broker.stop()
        given = {"topic": "orders", "path": ",".join(map(str, folders))}
        assert find_target(read_write_options(given), given).folders == target.folders
        given["topic"] = "other"
        with pytest.raises(PipelineError, match=r"topic 'other' is not in .*: a topic is created before it is loaded"):
            find_target(read_write_options(given), given)
    given = options_of(broker)
    with pytest.raises(PipelineError, match=r"topic 'orders' can not be loaded: 127\.0\.0\.1:"):
        find_target(read_write_options(given), given)


@pytest.mark.kafka
def test_a_broker_that_is_no_barnabas_is_told_apart(kafka_peer: KafkaPeer) -> None:
    create_topics(kafka_peer, {"orders": 1})
    given = {"topic": "orders", "kafka.bootstrap.servers": kafka_peer.bootstrap_servers}
    options = read_write_options(given)
    # Kafka answers for a topic a moment before it has made its folders.
    wait_until(lambda: has_folders(given), "the folders of the topic")
    with pytest.raises(PipelineError, match=r"bulk load needs a Barnabas broker, and .* is none"):
        adopt(find_target(options, given), options, "one", [0])
