"""aiokafka, on an event loop of its own in a thread, so that scenarios call it like all other clients."""

import asyncio
import threading
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, TypeVar

# aiokafka carries no type information.
import aiokafka  # type: ignore[import-untyped]
from aiokafka.admin import (  # type: ignore[import-untyped]
    AIOKafkaAdminClient,
    NewPartitions,
    NewTopic,
    RecordsToDelete,
)
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType  # type: ignore[import-untyped]
from aiokafka.errors import KafkaError  # type: ignore[import-untyped]

from tests.compat.model import (
    DEADLINE_S,
    ClientError,
    ClusterDescription,
    ConsumerOptions,
    FoundOffset,
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
    error_name,
    isolation_level,
)

Result = TypeVar("Result")

APPEND_TIME = 1
DEADLINE_MS = int(DEADLINE_S * 1000)


@contextmanager
def translated() -> Iterator[None]:
    try:
        yield
    except KafkaError as failure:
        code = getattr(failure, "errno", None)
        name = error_name(code) if code else f"local: {type(failure).__name__}"
        raise ClientError(name, str(failure)) from failure


def raise_for(code: int, message: str | None = None) -> None:
    if code != 0:
        raise ClientError(error_name(code), message or "")


class Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="aiokafka")
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        with translated():
            # Twice the deadline, so that the client's own one comes first.
            return asyncio.run_coroutine_threadsafe(work, self._loop).result(2 * DEADLINE_S)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


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
            enable_idempotence=bool(options.idempotent),
            request_timeout_ms=DEADLINE_MS,
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


def record_of(record: Any) -> Record:
    return Record(
        partition=record.partition,
        offset=record.offset,
        timestamp_ms=record.timestamp,
        append_time=record.timestamp_type == APPEND_TIME,
        key=record.key,
        value=record.value,
        headers=tuple(record.headers),
    )


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
