"""The options of the sink, in one table, and a query's options read into plain values by it.

Names, values and refusals are those of Spark's own Kafka sink and of Kafka's producer, so that changing
`format("kafka")` to `format("barnabas")` is all there is to do.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from barnabas.client.sender import ACKS_ALL, ACKS_LEADER, ACKS_NONE, SendOptions
from barnabas.records.codecs import CODEC_NAMES, Codec
from barnabas.spark.errors import OptionError
from barnabas.spark.options import BOOLEAN, INT32_MAX, GivenOptions, OptionRow

EXACTLY_ONCE = "exactly-once"
AT_LEAST_ONCE = "at-least-once"

_BYTES = "bytes, 1 or more"
_MILLISECONDS = "milliseconds, 1 or more"
_ACKS = {"all": ACKS_ALL, "-1": ACKS_ALL, "1": ACKS_LEADER, "0": ACKS_NONE}
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

SINK_OPTIONS: tuple[OptionRow, ...] = (
    OptionRow(
        name="topic",
        default="",
        values="a topic",
        meaning="Where all rows go; goes before a column `topic`. Without it that column is needed.",
    ),
    OptionRow(
        name="includeHeaders",
        default="false",
        values=BOOLEAN,
        meaning="Accepted, because the source has it; a column `headers` is written whenever there is one.",
    ),
    OptionRow(
        name="deliveryGuarantee",
        default=EXACTLY_ONCE,
        values=f"{EXACTLY_ONCE}, {AT_LEAST_ONCE}",
        meaning="Streaming only: exactly once by transactions, for readers with isolation.level=read_committed; or at "
        "least once, as Spark's own sink. Batch writes are at least once: a task that is tried again writes again.",
    ),
    OptionRow(
        name="checkpointLocation",
        default="",
        values="a path or URI",
        meaning="Spark's own; exactly once keeps its decisions there too, in `barnabas-sink`, and needs it as an "
        "option of the query, with its scheme unless it is a local path.",
    ),
    OptionRow(
        name="transactionalIdPrefix",
        default="barnabas-spark",
        values="text",
        meaning="How transactional ids begin; the id of the query, the task and its attempt follow.",
    ),
    OptionRow(
        name="kafka.acks",
        default="all",
        values="all, -1, 1, 0",
        meaning="Whose word a batch waits for. Exactly once needs all.",
    ),
    OptionRow(
        name="kafka.enable.idempotence",
        default="true",
        values=BOOLEAN,
        meaning="Whether the broker recognises a batch that is sent again. Only with acks=all; exactly once needs it.",
    ),
    OptionRow(
        name="kafka.compression.type",
        default="none",
        values="none, gzip, snappy, lz4, zstd",
        meaning="How batches are compressed.",
    ),
    OptionRow(
        name="kafka.batch.size",
        default=str(512 * 1024),
        values=_BYTES,
        meaning="How large batches become before compression; never larger than the topic's max.message.bytes allows.",
    ),
    OptionRow(
        name="kafka.max.request.size",
        default=str(1024 * 1024),
        values=_BYTES,
        meaning="About how large a request becomes. One batch is sent even if it is larger.",
    ),
    OptionRow(
        name="kafka.buffer.memory",
        default=str(32 * 1024 * 1024),
        values=_BYTES,
        meaning="How much a task keeps that is not acknowledged.",
    ),
    OptionRow(
        name="kafka.max.in.flight.requests.per.connection",
        default="5",
        values="1 to 5",
        meaning="How many requests are on the way to a broker at once.",
    ),
    OptionRow(
        name="kafka.delivery.timeout.ms",
        default="120000",
        values=_MILLISECONDS,
        meaning="How long a batch is tried again before the task fails; also how long a broker may be away.",
    ),
    OptionRow(
        name="kafka.transaction.timeout.ms",
        default="900000",
        values=_MILLISECONDS,
        meaning="Exactly once only: how long a batch of the query may take, at most the broker's "
        "transaction.max.timeout.ms. Readers wait for as long as this behind a query that died and did not come back.",
    ),
)

REFUSED = {
    "kafka.key.serializer": "is not for this sink: keys are strings or bytes, which are written as they are",
    "kafka.value.serializer": "is not for this sink: values are strings or bytes, which are written as they are",
    "kafka.partitioner.class": "is not for this sink: rows go to partitions by the column partition, or by their key "
    "as Kafka's own partitioner does it",
    "kafka.partitioner.ignore.keys": "is not for this sink: leave the column key out, or give a column partition",
    "kafka.interceptor.classes": "is not for this sink: there is no Java producer that it could be put into",
    "kafka.transactional.id": "is not for this sink: every task has an id of its own; give 'transactionalIdPrefix'",
}
"""Settings of Kafka's producer that could not do here what they are for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """What a query says of its sink; plain values, for the driver and for tasks."""

    topic: str | None
    codec: Codec
    batch_size: int
    sending: SendOptions
    delivery_guarantee: str
    checkpoint_location: str | None
    transactional_id_prefix: str
    transaction_timeout_ms: int

    @property
    def is_exactly_once(self) -> bool:
        """Whether a streaming query writes in transactions."""
        return self.delivery_guarantee == EXACTLY_ONCE


def read_options(options: Mapping[str, str], *, is_streaming: bool) -> SinkOptions:
    """Read the options of a query; raises OptionError for the first that makes no sense."""
    given = GivenOptions(options, SINK_OPTIONS, REFUSED)
    sending = SendOptions(
        acks=_ACKS[given.choice("kafka.acks", tuple(_ACKS))],
        enable_idempotence=given.boolean("kafka.enable.idempotence"),
        max_in_flight_requests_per_connection=given.number("kafka.max.in.flight.requests.per.connection", 1, 5),
        max_request_size=given.number("kafka.max.request.size", 1, INT32_MAX),
        buffer_memory=given.number("kafka.buffer.memory"),
        delivery_timeout_ms=given.number("kafka.delivery.timeout.ms", 1, INT32_MAX),
    )
    given.boolean("includeHeaders")
    if given.given("topic") == "":
        raise OptionError("topic", "is empty; give the name of a topic")
    return SinkOptions(
        topic=given.given("topic"),
        codec=CODEC_NAMES[given.choice("kafka.compression.type", _CODECS)],
        batch_size=given.number("kafka.batch.size", 1, INT32_MAX),
        sending=sending,
        delivery_guarantee=_guarantee(given, sending, is_streaming=is_streaming),
        checkpoint_location=given.given("checkpointLocation"),
        transactional_id_prefix=given.text("transactionalIdPrefix"),
        transaction_timeout_ms=given.number("kafka.transaction.timeout.ms", 1, INT32_MAX),
    )


def _guarantee(given: GivenOptions, sending: SendOptions, *, is_streaming: bool) -> str:
    guarantee = given.choice("deliveryGuarantee", (EXACTLY_ONCE, AT_LEAST_ONCE))
    if not is_streaming:
        if given.is_given("deliveryGuarantee") and guarantee == EXACTLY_ONCE:
            raise OptionError(
                "deliveryGuarantee",
                f"is {EXACTLY_ONCE} for streaming queries only; a batch may be one, with trigger(availableNow=True)",
            )
        return AT_LEAST_ONCE
    if guarantee == EXACTLY_ONCE:
        _check_exactly_once(given, sending)
    return guarantee


def _check_exactly_once(given: GivenOptions, sending: SendOptions) -> None:
    """Refuse what can not go together with transactions."""
    if sending.acks != ACKS_ALL:
        raise OptionError("kafka.acks", f"has to be all, or 'deliveryGuarantee' to be {AT_LEAST_ONCE}")
    if not sending.enable_idempotence:
        raise OptionError("kafka.enable.idempotence", f"has to be true, or 'deliveryGuarantee' to be {AT_LEAST_ONCE}")
    if not given.given("checkpointLocation"):
        raise OptionError(
            "checkpointLocation",
            "is needed on the query itself, because decisions about its batches are kept there too; "
            f"without it, only 'deliveryGuarantee' {AT_LEAST_ONCE} is possible",
        )
