"""aiokafka, on an event loop of its own in a thread, so that scenarios call it like all other clients."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

# aiokafka carries no type information.
import aiokafka  # type: ignore[import-untyped]
from aiokafka.admin import (  # type: ignore[import-untyped]
    AIOKafkaAdminClient,
    NewPartitions,
    NewTopic,
    RecordsToDelete,
)
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType  # type: ignore[import-untyped]

from tests.compat.drivers.aiokafka_common import Loop, raise_for, record_of
from tests.compat.drivers.aiokafka_groups import AiokafkaMember
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

DEADLINE_MS = int(DEADLINE_S * 1000)


class AiokafkaProducer:
    """A producer of aiokafka."""

    def __init__(self, loop: Loop, servers: str, options: ProducerOptions) -> None:
        self._loop = loop
        self._producer = loop.run(self._start(servers, options))

    @staticmethod
    async def _start(servers: str, options: ProducerOptions) -> aiokafka.AIOKafkaProducer:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=servers,
            acks=options.acks if options.acks == "all" else int(options.acks),
            compression_type=None if options.codec == "none" else options.codec,
            max_request_size=options.request_bytes_max,
            max_batch_size=max(options.batch_bytes, 1),
            enable_idempotence=bool(options.idempotent or options.transactional_id),
            request_timeout_ms=DEADLINE_MS,
            transactional_id=options.transactional_id,
            transaction_timeout_ms=options.transaction_timeout_ms,
        )
        await producer.start()
        return producer

    def __enter__(self) -> "AiokafkaProducer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.run(self._producer.stop())

    def send(self, topic: str, records: Sequence[NewRecord]) -> list[Position]:
        return self._loop.run(self._send(topic, records))

    async def _send(self, topic: str, records: Sequence[NewRecord]) -> list[Position]:
        futures = [
            await self._producer.send(
                topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                partition=record.partition,
                timestamp_ms=record.timestamp_ms,
            )
            for record in records
        ]
        answers = await asyncio.wait_for(asyncio.gather(*futures), DEADLINE_S)
        # Without acknowledgement aiokafka has nothing to tell, not even the partition.
        return [
            Position(partition=record.partition, offset=-1)
            if answer is None
            else Position(partition=answer.partition, offset=answer.offset)
            for record, answer in zip(records, answers, strict=True)
        ]

    def init_transactions(self) -> None:
        """aiokafka did so when it started."""

    def begin_transaction(self) -> None:
        self._loop.run(self._producer.begin_transaction())

    def send_offsets(self, topic: str, offsets: Mapping[int, int], member: Member) -> None:
        assert isinstance(member, AiokafkaMember)
        asked = {aiokafka.TopicPartition(topic, partition): offset for partition, offset in offsets.items()}
        self._loop.run(self._producer.send_offsets_to_transaction(asked, member.group))

    def commit_transaction(self) -> None:
        self._loop.run(self._producer.commit_transaction())

    def abort_transaction(self) -> None:
        self._loop.run(self._producer.abort_transaction())


class AiokafkaConsumer:
    """A consumer of aiokafka with assigned partitions."""

    def __init__(
        self, loop: Loop, servers: str, topic: str, start: Mapping[int, int], options: ConsumerOptions
    ) -> None:
        self._loop = loop
        self._consumer = loop.run(self._start(servers, topic, start, options))

    @staticmethod
    async def _start(
        servers: str, topic: str, start: Mapping[int, int], options: ConsumerOptions
    ) -> aiokafka.AIOKafkaConsumer:
        settings: dict[str, Any] = {
            "bootstrap_servers": servers,
            "enable_auto_commit": False,
            "auto_offset_reset": options.reset,
            "fetch_max_wait_ms": options.fetch_wait_ms_max,
        }
        if options.read_committed is not None:
            settings["isolation_level"] = isolation_level(options.read_committed)
        consumer = aiokafka.AIOKafkaConsumer(**settings)
        await consumer.start()
        partitions = {aiokafka.TopicPartition(topic, number): offset for number, offset in start.items()}
        consumer.assign(list(partitions))
        for partition, offset in partitions.items():
            consumer.seek(partition, offset)
        return consumer

    def __enter__(self) -> "AiokafkaConsumer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.run(self._consumer.stop())

    def take(self, count: int) -> list[Record]:
        return self._loop.run(self._take(count))

    async def _take(self, count: int) -> list[Record]:
        records: list[Record] = []
        deadline = time.monotonic() + DEADLINE_S
        while len(records) < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(records)} of {count} records came")
            polled = await self._consumer.getmany(timeout_ms=200, max_records=count - len(records))
            records += [record_of(each) for batch in polled.values() for each in batch]
        return records


class AiokafkaDriver:
    """aiokafka, connected to one broker."""

    name = "aiokafka"
    lacks: Mapping[Need, str] = {
        Need.NULL_KEY_AND_VALUE: "refused by the client",
        Need.INVALID_RECORD: "the client does not know the error",
        Need.MAX_TIMESTAMP: "no such call",
        Need.INCREMENTAL_ALTER: "no such call",
        Need.LOG_DIRS: "no such call",
        Need.DESCRIBE_PRODUCERS: "no such call",
        Need.TOPIC_ID: "not shown by the client",
        Need.DESCRIBE_WITHOUT_CREATING: "the client always allows the broker to create the topic",
        Need.CONSUMER_PROTOCOL: "not in the client",
        Need.COOPERATIVE: "not in the client",
        Need.DELETE_GROUPS: "no such call",
    }

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._loop = Loop()
        self._admin, self._consumer = self._loop.run(self._start(servers))

    @staticmethod
    async def _start(servers: str) -> tuple[AIOKafkaAdminClient, aiokafka.AIOKafkaConsumer]:
        """The admin client, and a consumer for questions that aiokafka answers nowhere else."""
        admin = AIOKafkaAdminClient(bootstrap_servers=servers, request_timeout_ms=DEADLINE_MS)
        await admin.start()
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=servers, enable_auto_commit=False)
        await consumer.start()
        return admin, consumer

    def close(self) -> None:
        self._loop.run(self._consumer.stop())
        self._loop.run(self._admin.close())
        self._loop.close()

    def producer(self, options: ProducerOptions) -> AiokafkaProducer:
        return AiokafkaProducer(self._loop, self._servers, options)

    def consumer(self, topic: str, start: Mapping[int, int], options: ConsumerOptions) -> AiokafkaConsumer:
        return AiokafkaConsumer(self._loop, self._servers, topic, start, options)

    def member(self, options: MemberOptions) -> AiokafkaMember:
        return AiokafkaMember(self._loop, self._servers, options)

    def committed(self, group: str, topic: str) -> dict[int, CommittedOffset]:
        answers = self._loop.run(self._admin.list_consumer_group_offsets(group))
        return {
            partition.partition: CommittedOffset(offset=each.offset, metadata=each.metadata or "")
            for partition, each in answers.items()
            if partition.topic == topic and each.offset >= 0
        }

    def list_groups(self) -> set[str]:
        return {group for group, _ in self._loop.run(self._admin.list_consumer_groups())}

    def describe_group(self, group: str) -> GroupDescription:
        [answer] = self._loop.run(self._admin.describe_consumer_groups([group]))
        [(code, _, state, _, _, members, *_)] = answer.groups
        raise_for(code)
        return GroupDescription(state=state.upper(), members=len(members))

    def delete_group(self, group: str) -> None:
        raise NotImplementedError(self.lacks[Need.DELETE_GROUPS])

    def offsets_for_times(self, topic: str, times_ms: Mapping[int, int]) -> dict[int, FoundOffset | None]:
        asked = {aiokafka.TopicPartition(topic, number): time_ms for number, time_ms in times_ms.items()}
        answers = self._loop.run(self._consumer.offsets_for_times(asked))
        return {
            partition.partition: None if found is None else FoundOffset(offset=found[0], timestamp_ms=found[1])
            for partition, found in answers.items()
        }

    def list_offset(self, topic: str, partition: int, spec: OffsetSpec) -> FoundOffset:
        if spec == "max-timestamp":
            raise NotImplementedError(self.lacks[Need.MAX_TIMESTAMP])
        asked = aiokafka.TopicPartition(topic, partition)
        ask = self._consumer.beginning_offsets if spec == "earliest" else self._consumer.end_offsets
        answers = self._loop.run(ask([asked]))
        return FoundOffset(offset=answers[asked], timestamp_ms=-1)

    def create_topic(self, topic: str, partitions: int, settings: Mapping[str, str], replicas: int = 1) -> None:
        new = NewTopic(topic, partitions, replicas, topic_configs=dict(settings))
        answer: Any = self._loop.run(self._admin.create_topics([new]))
        [(_, code, message)] = answer.topic_errors
        raise_for(code, message)

    def delete_topic(self, topic: str) -> None:
        answer: Any = self._loop.run(self._admin.delete_topics([topic]))
        [(_, code)] = answer.topic_error_codes
        raise_for(code)

    def list_topics(self) -> set[str]:
        return set(self._loop.run(self._admin.list_topics()))

    def describe_topic(self, topic: str) -> TopicDescription:
        [described] = self._loop.run(self._admin.describe_topics([topic]))
        raise_for(described["error_code"])
        return TopicDescription(
            topic_id=None,
            partitions=tuple(
                PartitionDescription(
                    number=partition["partition"],
                    leader=partition["leader"],
                    replicas=tuple(partition["replicas"]),
                    in_sync_replicas=tuple(partition["isr"]),
                )
                for partition in sorted(described["partitions"], key=lambda each: int(each["partition"]))
            ),
        )

    def create_partitions(self, topic: str, total: int) -> None:
        self._loop.run(self._admin.create_partitions({topic: NewPartitions(total)}))

    def topic_settings(self, topic: str) -> dict[str, Setting]:
        return self._settings(ConfigResourceType.TOPIC, topic)

    def broker_settings(self, broker_id: int) -> dict[str, Setting]:
        return self._settings(ConfigResourceType.BROKER, str(broker_id))

    def _settings(self, kind: ConfigResourceType, name: str) -> dict[str, Setting]:
        answers: Any = self._loop.run(self._admin.describe_configs([ConfigResource(kind, name)]))
        [(code, message, _, _, entries)] = answers[0].resources
        raise_for(code, message)
        # The source of a value is a number: 5 is DEFAULT_CONFIG.
        return {
            setting: Setting(value=value, is_default=source == 5, is_read_only=bool(read_only))
            for setting, value, read_only, source, *_ in entries
        }

    def alter_topic(self, topic: str, changes: Mapping[str, str | None]) -> None:
        raise NotImplementedError(self.lacks[Need.INCREMENTAL_ALTER])

    def replace_topic_settings(self, topic: str, settings: Mapping[str, str]) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, dict(settings))
        answers: Any = self._loop.run(self._admin.alter_configs([resource]))
        [(code, message, *_)] = answers[0].resources
        raise_for(code, message)

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        asked = {aiokafka.TopicPartition(topic, partition): RecordsToDelete(before_offset)}
        low_watermark: int
        [low_watermark] = self._loop.run(self._admin.delete_records(asked)).values()
        return low_watermark

    def describe_cluster(self) -> ClusterDescription:
        cluster = self._loop.run(self._admin.describe_cluster())
        return ClusterDescription(
            cluster_id=cluster["cluster_id"],
            controller_id=cluster["controller_id"],
            brokers={broker["node_id"]: f"{broker['host']}:{broker['port']}" for broker in cluster["brokers"]},
        )

    def log_dirs(self, topic: str) -> dict[int, int]:
        raise NotImplementedError(self.lacks[Need.LOG_DIRS])

    def describe_producers(self, topic: str, partition: int) -> list[ProducerState]:
        raise NotImplementedError(self.lacks[Need.DESCRIBE_PRODUCERS])
