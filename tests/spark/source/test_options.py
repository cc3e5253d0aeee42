"""The options of a query, read and refused."""

import pytest

from barnabas.client.offsets import IsolationLevel
from barnabas.model import TopicPartition
from barnabas.spark.errors import OptionError
from barnabas.spark.source.offset_limits import AtTime, AtTimes, Named
from barnabas.spark.source.options import SOURCE_OPTIONS, Subscription, read_batch_options, read_stream_options

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
ORDERS = {**SERVERS, "subscribe": "orders"}


def test_defaults_are_those_of_sparks_own_source() -> None:
    batch = read_batch_options(ORDERS)
    assert (batch.start, batch.end) == (Named.EARLIEST, Named.LATEST)
    stream = read_stream_options(ORDERS)
    assert (stream.start, stream.end) == (Named.LATEST, Named.LATEST)
    for options in (batch, stream):
        assert options.fail_on_data_loss
        assert options.is_late_start_an_error
        assert not options.include_headers
        assert options.isolation == IsolationLevel.READ_UNCOMMITTED
        assert options.max_trigger_delay_ms == 15 * 60 * 1000
        assert options.poll_timeout_ms == 120_000
        assert options.group_id is None


def test_every_option_can_be_given_under_its_name_in_any_case() -> None:
    given = {
        "SUBSCRIBE": "b, a,",
        "FailOnDataLoss": "FALSE",
        "minpartitions": "7",
        "MAXRECORDSPERPARTITION": "8",
        "maxBytesPerPartition": "0",
        "maxOffsetsPerTrigger": "100",
        "minOffsetsPerTrigger": "10",
        "maxTriggerDelay": "2h",
        "includeheaders": "true",
        "groupIdPrefix": "mine",
        "kafka.group.id": "archive",
        "kafka.isolation.level": "read_committed",
        "kafka.max.partition.fetch.bytes": "1000",
        "kafka.fetch.max.bytes": "2000",
        "kafka.fetch.min.bytes": "3",
        "kafka.fetch.max.wait.ms": "4",
        "kafka.check.crcs": "false",
        "kafkaConsumer.pollTimeoutMs": "5",
        "fetchOffset.numRetries": "6",
        "fetchOffset.retryIntervalMs": "7",
        "startingOffsetsByTimestampStrategy": "latest",
        "startingOffsets": "earliest",
    }
    read = read_stream_options({**SERVERS, **given})
    assert read.subscription == Subscription(topics=("a", "b"))
    assert not read.fail_on_data_loss
    assert (read.min_partitions, read.max_records_per_partition, read.max_bytes_per_partition) == (7, 8, 0)
    assert (read.max_offsets_per_trigger, read.min_offsets_per_trigger) == (100, 10)
    assert read.max_trigger_delay_ms == 7_200_000
    assert read.include_headers
    assert read.group_id == "archive"
    assert read.fetch.isolation_level == IsolationLevel.READ_COMMITTED
    assert (read.fetch.max_partition_fetch_bytes, read.fetch.fetch_max_bytes) == (1000, 2000)
    assert (read.fetch.fetch_min_bytes, read.fetch.fetch_max_wait_ms) == (3, 4)
    assert not read.fetch.check_crcs
    assert read.poll_timeout_ms == 5
    assert not read.is_late_start_an_error
    assert read.start is Named.EARLIEST


def test_times_win_over_offsets() -> None:
    options = ORDERS | {"startingOffsets": "earliest", "startingOffsetsByTimestamp": '{"orders": {"0": 1}}'}
    assert isinstance(read_batch_options(options).start, AtTimes)
    assert isinstance(read_batch_options(options | {"startingTimestamp": "5"}).start, AtTime)
    ending = {"endingOffsets": "latest", "endingTimestamp": "9", "endingOffsetsByTimestamp": "{}"}
    assert read_batch_options(ORDERS | ending).end == AtTime(option="endingTimestamp", timestamp_ms=9)


def test_just_one_way_to_say_what_is_read() -> None:
    assert read_batch_options(SERVERS | {"subscribePattern": "or.*"}).subscription == Subscription(pattern="or.*")
    assigned = read_batch_options(SERVERS | {"assign": '{"orders": [1]}'}).subscription
    assert assigned == Subscription(partitions=(TopicPartition("orders", 1),))
    with pytest.raises(OptionError, match="'subscribe' is needed"):
        read_batch_options(SERVERS)
    with pytest.raises(OptionError, match="'assign' says what to read, but so does 'subscribe'"):
        read_batch_options(ORDERS | {"assign": "{}"})


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("subscribe", " , ", "names nothing"),
        ("subscribePattern", " ", "is an empty regular expression"),
        ("subscribePattern", "(", "is no regular expression"),
        ("minPartitions", "0", "is a number from 1 on, but '0' was given"),
        ("maxRecordsPerPartition", "many", "is a number from 1 on"),
        ("maxBytesPerPartition", "-1", "is a number from 0 on"),
        ("maxOffsetsPerTrigger", "0", "is a number from 1 on"),
        ("failOnDataLoss", "maybe", "is true or false, but 'maybe' was given"),
        ("includeHeaders", "", "is true or false"),
        ("maxTriggerDelay", "soon", "is a time as 30s, 15m or 1h"),
        ("startingOffsetsByTimestampStrategy", "earliest", "is error or latest"),
        ("kafka.isolation.level", "serializable", "is read_uncommitted or read_committed"),
        ("kafka.group.id", " ", "is empty"),
        ("fetchOffset.numRetries", "often", "is a number from 0 on"),
        ("kafka.auto.offset.reset", "earliest", "set 'startingOffsets' instead"),
        ("kafka.key.deserializer", "x", "keys are bytes"),
        ("kafka.value.deserializer", "x", "values are bytes"),
        ("kafka.enable.auto.commit", "true", "is not for a query"),
        ("kafka.interceptor.classes", "x", "is not for a query"),
        ("failOnDataLos", "true", "is not known; is 'failOnDataLoss' meant?"),
        ("startingOffset", "earliest", "is not known; is 'startingOffsets' meant?"),
        ("kafka.isolation.levle", "read_committed", "is not known; is 'kafka.isolation.level' meant?"),
        ("colour", "blue", "is not known"),
    ],
)
def test_what_can_not_be_read_is_refused_by_name(name: str, value: str, problem: str) -> None:
    options = SERVERS if name.startswith("subscribe") else ORDERS
    for read in (read_batch_options, read_stream_options):
        with pytest.raises(OptionError) as raised:
            read({**options, name: value})
        assert raised.value.option.lower() == name.lower()
        assert problem in str(raised.value)


def test_limits_of_a_batch_contradict_each_other() -> None:
    with pytest.raises(OptionError, match="'minOffsetsPerTrigger' is 5, which is more than 'maxOffsetsPerTrigger', 4"):
        read_stream_options(ORDERS | {"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"})


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    with pytest.raises(OptionError, match=f"'{name}' is for batch queries"):
        read_stream_options(ORDERS | {name: "latest"})


def test_what_means_nothing_here_is_accepted() -> None:
    given = {"path": "x", "checkpointLocation": "x", "kafka.max.poll.records": "5", "kafka.ssl.provider": "x"}
    assert read_stream_options(ORDERS | given) == read_stream_options(ORDERS)


def test_the_table_has_each_option_once_with_a_sentence() -> None:
    names = [row.name.lower() for row in SOURCE_OPTIONS]
    assert len(set(names)) == len(names)
    for row in SOURCE_OPTIONS:
        assert row.meaning.endswith("."), row.name
        assert row.values, row.name
        assert row.queries in ("batch", "streaming", "batch and streaming")
