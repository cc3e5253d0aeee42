"""The table of options: what is read, what is refused, and with which sentence."""

import pytest

from barnabas.client.sender import ACKS_ALL, ACKS_LEADER
from barnabas.records.codecs import Codec
from barnabas.spark.errors import OptionError
from barnabas.spark.sink.options import (
    AT_LEAST_ONCE,
    EXACTLY_ONCE,
    REFUSED,
    SINK_OPTIONS,
    SinkOptions,
    read_options,
)


def read(*, is_streaming: bool = False, **options: str) -> SinkOptions:
    return read_options({name.replace("_", "."): value for name, value in options.items()}, is_streaming=is_streaming)


def test_without_options_everything_is_as_the_table_says() -> None:
    options = read()
    defaults = {option.name: option.default for option in SINK_OPTIONS}
    assert options.topic is None
    assert str(options.batch_size) == defaults["kafka.batch.size"]
    assert str(options.transaction_timeout_ms) == defaults["kafka.transaction.timeout.ms"]
    assert options.transactional_id_prefix == defaults["transactionalIdPrefix"]
    assert (options.codec, options.sending.acks, options.sending.is_idempotent) == (Codec.NONE, ACKS_ALL, True)
    assert (options.delivery_guarantee, options.is_exactly_once) == (AT_LEAST_ONCE, False)


def test_options_are_read_whatever_the_case_of_their_names() -> None:
    options = read(
        TOPIC="orders",
        kafka_Compression_type="zstd",
        kafka_acks="1",
        kafka_batch_size="1000",
        kafka_delivery_timeout_ms="5",
        includeheaders="true",
        path="/x",
        kafka_sasl_mechanism="PLAIN",
        kafka_bootstrap_servers="x:1",
    )
    assert (options.topic, options.codec, options.batch_size) == ("orders", Codec.ZSTD, 1000)
    assert (options.sending.acks, options.sending.delivery_timeout_ms) == (ACKS_LEADER, 5)


def test_a_streaming_query_is_exactly_once_unless_it_says_otherwise() -> None:
    options = read(is_streaming=True, checkpointLocation="/checkpoint")
    assert (options.delivery_guarantee, options.checkpoint_location) == (EXACTLY_ONCE, "/checkpoint")
    assert not read(is_streaming=True, deliveryGuarantee="At-Least-Once", kafka_acks="0").is_exactly_once


@pytest.mark.parametrize("name", ["kafka.linger.ms", "kafka.retries", "kafka.metrics.num.samples"])
def test_settings_without_effect_are_accepted(name: str) -> None:
    assert read_options({name: "7"}, is_streaming=False) == read()


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_settings_that_can_not_be_are_refused(name: str) -> None:
    with pytest.raises(OptionError, match=f"^option '{name}' is not for this sink: "):
        read_options({name: "x"}, is_streaming=False)


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("topik", "x", "option 'topik' is not known; is 'topic' meant?"),
        ("kafka.batchsize", "1", "option 'kafka.batchsize' is not known; is 'kafka.batch.size' meant?"),
        ("zzzzzzzz", "x", "option 'zzzzzzzz' is not known"),
        ("topic", "", "option 'topic' is empty; give the name of a topic"),
        ("kafka.acks", "2", "option 'kafka.acks' is all or -1 or 1 or 0, but '2' was given"),
        ("kafka.batch.size", "-1", "option 'kafka.batch.size' is a number from 1 on, but '-1' was given"),
        (
            "kafka.max.in.flight.requests.per.connection",
            "6",
            "option 'kafka.max.in.flight.requests.per.connection' is a number from 1 to 5, but '6' was given",
        ),
        ("kafka.ssl.nonsense", "x", "option 'kafka.ssl.nonsense' is not known"),
        ("includeHeaders", "yes", "option 'includeHeaders' is true or false, but 'yes' was given"),
        (
            "deliveryGuarantee",
            "exactly-once",
            "option 'deliveryGuarantee' is exactly-once for streaming queries only; "
            "a batch may be one, with trigger(availableNow=True)",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(name: str, value: str, sentence: str) -> None:
    with pytest.raises(OptionError) as raised:
        read_options({name: value}, is_streaming=False)
    assert str(raised.value).startswith(sentence)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "option 'checkpointLocation' is needed on the query itself"),
        ({"checkpointlocation": "/c", "kafka.acks": "1"}, "option 'kafka.acks' has to be all"),
        (
            {"checkpointlocation": "/c", "kafka.enable.idempotence": "false"},
            "option 'kafka.enable.idempotence' has to be true",
        ),
    ],
)
def test_exactly_once_says_what_it_needs(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(OptionError, match=f"^{sentence}.*at-least-once"):
        read_options(options, is_streaming=True)
