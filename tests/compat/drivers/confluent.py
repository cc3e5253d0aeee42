"""confluent-kafka, which is librdkafka."""

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any

import confluent_kafka
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicCollection, TopicPartition

# The names are public, but not exported in the way that a type checker asks for.
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from confluent_kafka.admin import OffsetSpec as ConfluentSpec  # type: ignore[attr-defined]

from tests.compat.drivers.confluent_common import client_error, record_of, result_of, translated
from tests.compat.drivers.confluent_groups import ConfluentMember
from tests.compat.model import (
    DEADLINE_S,
    ClusterDescription,
    CommittedOffset,
    ConsumerOptions,
    FoundOffset,
    GroupDescription,
    Member,
    MemberOptions,
    Need,
    NewRecord,
    OffsetSpec,
    PartitionDescription,
    Position,
    ProducerOptions,
    ProducerState,
    Record,
    Setting,
    TopicDescription,
    isolation_level,
)

# librdkafka refuses to start a consumer without one; assigned with explicit offsets it never asks for the group.
UNUSED_GROUP = "assigned-only"


class ConfluentProducer:
    """A producer of librdkafka."""

    def __init__(self, servers: str, options: ProducerOptions) -> None:
        settings: dict[str, str | int | float | bool] = {
            "bootstrap.servers": servers,
            "acks": options.acks,
            "compression.type": options.codec,
            "message.max.bytes": options.request_bytes_max,
            "batch.size": options.batch_bytes,
            "message.timeout.ms": int(DEADLINE_S * 1000),
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
        if options.idempotent is not None:
            settings["enable.idempotence"] = options.idempotent
        if options.transactional_id is not None:
            # A record must not outlive the transaction that it is part of.
            timeout_ms = options.transaction_timeout_ms
            settings |= {
                "transactional.id": options.transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "message.timeout.ms": timeout_ms,
            }
        self._producer = confluent_kafka.Producer(settings)

    def __enter__(self) -> "ConfluentProducer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._producer.purge()
        # One that was fenced says so whatever it is asked.
        with suppress(KafkaException):
            self._producer.flush(1)

    def send(self, topic: str, records: Sequence[NewRecord]) -> list[Position]:
        outcomes: dict[int, Position | KafkaError] = {}

        def delivered(number: int) -> Callable[[KafkaError | None, confluent_kafka.Message], None]:
            def on_delivery(error: KafkaError | None, message: confluent_kafka.Message) -> None:
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                outcomes[number] = error or Position(partition=partition, offset=-1 if offset is None else offset)

            return on_delivery

        with translated():
            for number, record in enumerate(records):
                # 0 means "now" to librdkafka.
                timing: dict[str, Any] = {} if record.timestamp_ms is None else {"timestamp": record.timestamp_ms}
                self._producer.produce(
                    topic,
                    record.value,
                    record.key,
                    record.partition,
                    on_delivery=delivered(number),
                    headers=list(record.headers),
                    **timing,
                )
            self._producer.flush(DEADLINE_S)
        positions = []
        for number in range(len(records)):
            match outcomes.get(number):
                case Position() as position:
                    positions.append(position)
                case KafkaError() as error:
                    raise client_error(error)
                case None:
                    raise TimeoutError(f"record {number} of {len(records)} was neither acknowledged nor refused")
        return positions

    def init_transactions(self) -> None:
        with translated():
            self._producer.init_transactions(DEADLINE_S)

    def begin_transaction(self) -> None:
        with translated():
            self._producer.begin_transaction()

    def send_offsets(self, topic: str, offsets: Mapping[int, int], member: Member) -> None:
        assert isinstance(member, ConfluentMember)
        asked = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
        with translated():
            metadata = member.consumer.consumer_group_metadata()
            self._producer.send_offsets_to_transaction(asked, metadata, DEADLINE_S)

    def commit_transaction(self) -> None:
        with translated():
            self._producer.commit_transaction(DEADLINE_S)

    def abort_transaction(self) -> None:
        with translated():
            self._producer.abort_transaction(DEADLINE_S)


class ConfluentConsumer:
    """A consumer of librdkafka with assigned partitions."""

    def __init__(self, servers: str, topic: str, start: Mapping[int, int], options: ConsumerOptions) -> None:
        settings: dict[str, str | int | float | bool] = {
            "bootstrap.servers": servers,
            "group.id": UNUSED_GROUP,
            "enable.auto.commit": False,
            "auto.offset.reset": "error" if options.reset == "none" else options.reset,
            "fetch.wait.max.ms": options.fetch_wait_ms_max,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
        if options.read_committed is not None:
            settings["isolation.level"] = isolation_level(options.read_committed)
        self._consumer = confluent_kafka.Consumer(settings)
        self._consumer.assign([TopicPartition(topic, number, offset) for number, offset in start.items()])

    def __enter__(self) -> "ConfluentConsumer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._consumer.close()

    def take(self, count: int) -> list[Record]:
        records: list[Record] = []
        deadline = time.monotonic() + DEADLINE_S
        while len(records) < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(records)} of {count} records came")
            for message in self._consumer.consume(count - len(records), 0.2):
                error = message.error()
                if error is None:
                    records.append(record_of(message))
                # A broker that is away for a moment is told of here; librdkafka connects again by itself.
                elif not (error.retriable() or error.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)):
                    raise client_error(error)
        return records


class ConfluentDriver:
    """confluent-kafka, connected to one broker."""

    name = "confluent-kafka"
    lacks: Mapping[Need, str] = {
        Need.LOG_DIRS: "no such call",
        Need.DESCRIBE_PRODUCERS: "no such call",
    }

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})

    def close(self) -> None:
        """librdkafka's admin client ends when it is forgotten."""
        del self._admin

    def producer(self, options: ProducerOptions) -> ConfluentProducer:
        return ConfluentProducer(self._servers, options)

    def consumer(self, topic: str, start: Mapping[int, int], options: ConsumerOptions) -> ConfluentConsumer:
        return ConfluentConsumer(self._servers, topic, start, options)

    def member(self, options: MemberOptions) -> ConfluentMember:
        return ConfluentMember(self._servers, options)

    def committed(self, group: str, topic: str) -> dict[int, CommittedOffset]:
        asked = self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
        answers = result_of(asked[group]).topic_partitions
        return {
            each.partition: CommittedOffset(offset=each.offset, metadata=each.metadata or "")
            for each in answers
            if each.topic == topic and each.offset >= 0
        }

    def list_groups(self) -> set[str]:
        return {group.group_id for group in result_of(self._admin.list_consumer_groups()).valid}

    def describe_group(self, group: str) -> GroupDescription:
        described = result_of(self._admin.describe_consumer_groups([group])[group])
        return GroupDescription(state=described.state.name.replace("_", ""), members=len(described.members))

    def delete_group(self, group: str) -> None:
        result_of(self._admin.delete_consumer_groups([group])[group])

    def offsets_for_times(self, topic: str, times_ms: Mapping[int, int]) -> dict[int, FoundOffset | None]:
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": self._servers, "group.id": UNUSED_GROUP, "log_level": 0}
        )
        try:
            with translated():
                asked = [TopicPartition(topic, number, time_ms) for number, time_ms in times_ms.items()]
                answers = consumer.offsets_for_times(asked, DEADLINE_S)
        finally:
            consumer.close()
        found: dict[int, FoundOffset | None] = {}
        for answer in answers:
            if answer.error is not None:
                raise client_error(answer.error)
            # librdkafka tells only the offset, and -1 (the end) for a time past all records.
            past_end = answer.offset < 0
            found[answer.partition] = None if past_end else FoundOffset(offset=answer.offset, timestamp_ms=-1)
        return found

    def list_offset(self, topic: str, partition: int, spec: OffsetSpec) -> FoundOffset:
        specs = {
            "earliest": ConfluentSpec.earliest(),  # type: ignore[no-untyped-call]
            "latest": ConfluentSpec.latest(),  # type: ignore[no-untyped-call]
            "max-timestamp": ConfluentSpec.max_timestamp(),  # type: ignore[no-untyped-call]
        }
        [future] = self._admin.list_offsets({TopicPartition(topic, partition): specs[spec]}).values()
        info = result_of(future)
        return FoundOffset(offset=info.offset, timestamp_ms=info.timestamp)

    def create_topic(self, topic: str, partitions: int, settings: Mapping[str, str], replicas: int = 1) -> None:
        new = NewTopic(topic, partitions, replicas, config=dict(settings))
        result_of(self._admin.create_topics([new])[topic])

    def delete_topic(self, topic: str) -> None:
        result_of(self._admin.delete_topics([topic])[topic])

    def list_topics(self) -> set[str]:
        with translated():
            return set(self._admin.list_topics(timeout=DEADLINE_S).topics)

    def describe_topic(self, topic: str) -> TopicDescription:
        described = result_of(self._admin.describe_topics(TopicCollection([topic]))[topic])
        return TopicDescription(
            topic_id=str(described.topic_id),
            partitions=tuple(
                PartitionDescription(
                    number=partition.id,
                    leader=partition.leader.id if partition.leader else -1,
                    replicas=tuple(node.id for node in partition.replicas),
                    in_sync_replicas=tuple(node.id for node in partition.isr),
                )
                for partition in described.partitions
            ),
        )

    def create_partitions(self, topic: str, total: int) -> None:
        result_of(self._admin.create_partitions([NewPartitions(topic, total)])[topic])

    def topic_settings(self, topic: str) -> dict[str, Setting]:
        return self._settings(ConfigResource(ResourceType.TOPIC, topic))

    def broker_settings(self, broker_id: int) -> dict[str, Setting]:
        return self._settings(ConfigResource(ResourceType.BROKER, str(broker_id)))

    def _settings(self, resource: ConfigResource) -> dict[str, Setting]:
        [future] = self._admin.describe_configs([resource]).values()
        entries: dict[str, ConfigEntry] = result_of(future)
        return {
            name: Setting(value=entry.value, is_default=entry.is_default, is_read_only=entry.is_read_only)
            for name, entry in entries.items()
        }

    def alter_topic(self, topic: str, changes: Mapping[str, str | None]) -> None:
        entries = [
            ConfigEntry(
                name,
                value,
                incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
            )
            for name, value in changes.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        [future] = self._admin.incremental_alter_configs([resource]).values()
        result_of(future)

    def replace_topic_settings(self, topic: str, settings: Mapping[str, str]) -> None:
        resource = ConfigResource(ResourceType.TOPIC, topic, set_config=dict(settings))
        with warnings.catch_warnings():
            # The old call is what this is about.
            warnings.simplefilter("ignore", DeprecationWarning)
            [future] = self._admin.alter_configs([resource]).values()
        result_of(future)

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        [future] = self._admin.delete_records([TopicPartition(topic, partition, before_offset)]).values()
        low_watermark: int = result_of(future).low_watermark
        return low_watermark

    def describe_cluster(self) -> ClusterDescription:
        cluster = result_of(self._admin.describe_cluster())
        return ClusterDescription(
            cluster_id=cluster.cluster_id,
            controller_id=cluster.controller.id,
            brokers={node.id: f"{node.host}:{node.port}" for node in cluster.nodes},
        )

    def log_dirs(self, topic: str) -> dict[int, int]:
        raise NotImplementedError(self.lacks[Need.LOG_DIRS])

    def describe_producers(self, topic: str, partition: int) -> list[ProducerState]:
        raise NotImplementedError(self.lacks[Need.DESCRIBE_PRODUCERS])
