"""kafka-python."""

import re
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

import kafka
import kafka.codec
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.protocol.consumer import OffsetSpec as KafkaPythonSpec
from kafka.structs import OffsetAndMetadata

from tests.compat.drivers.kafka_python_common import record_of, translated
from tests.compat.drivers.kafka_python_groups import KafkaPythonMember
from tests.compat.model import (
    DEADLINE_S,
    ClientError,
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
    error_name,
    isolation_level,
)

DEADLINE_MS = int(DEADLINE_S * 1000)


class KafkaPythonProducer:
    """A producer of kafka-python."""

    def __init__(self, servers: str, options: ProducerOptions) -> None:
        settings: dict[str, Any] = {
            "bootstrap_servers": servers,
            "acks": options.acks if options.acks == "all" else int(options.acks),
            "compression_type": None if options.codec == "none" else options.codec,
            "max_request_size": options.request_bytes_max,
            "batch_size": options.batch_bytes,
            "delivery_timeout_ms": DEADLINE_MS,
            "reconnect_backoff_max_ms": 500,
        }
        if options.idempotent is not None:
            settings["enable_idempotence"] = options.idempotent
        elif options.acks != "all":
            # By default it is idempotent, which goes with acks=all only.
            settings["enable_idempotence"] = False
        if options.transactional_id is not None:
            settings |= {
                "transactional_id": options.transactional_id,
                "transaction_timeout_ms": options.transaction_timeout_ms,
            }
        with translated():
            self._producer = kafka.KafkaProducer(**settings)

    def __enter__(self) -> "KafkaPythonProducer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._producer.close(timeout=10)

    def send(self, topic: str, records: Sequence[NewRecord]) -> list[Position]:
        with translated():
            futures = [
                self._producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            answers = [future.get(timeout=DEADLINE_S) for future in futures]
        return [Position(partition=answer.partition, offset=answer.offset) for answer in answers]

    def init_transactions(self) -> None:
        with translated():
            self._producer.init_transactions()

    def begin_transaction(self) -> None:
        with translated():
            self._producer.begin_transaction()

    def send_offsets(self, topic: str, offsets: Mapping[int, int], member: Member) -> None:
        assert isinstance(member, KafkaPythonMember)
        asked = {
            kafka.TopicPartition(topic, partition): OffsetAndMetadata(offset, "", -1)
            for partition, offset in offsets.items()
        }
        with translated():
            self._producer.send_offsets_to_transaction(asked, member.consumer.group_metadata())

    def commit_transaction(self) -> None:
        with translated():
            self._producer.commit_transaction()

    def abort_transaction(self) -> None:
        with translated():
            self._producer.abort_transaction()


class KafkaPythonConsumer:
    """A consumer of kafka-python with assigned partitions."""

    def __init__(self, servers: str, topic: str, start: Mapping[int, int], options: ConsumerOptions) -> None:
        settings: dict[str, Any] = {
            "bootstrap_servers": servers,
            "enable_auto_commit": False,
            "auto_offset_reset": options.reset,
            "fetch_max_wait_ms": options.fetch_wait_ms_max,
            "reconnect_backoff_max_ms": 500,
        }
        if options.read_committed is not None:
            settings["isolation_level"] = isolation_level(options.read_committed)
        with translated():
            self._consumer = kafka.KafkaConsumer(**settings)
            partitions = {kafka.TopicPartition(topic, number): offset for number, offset in start.items()}
            self._consumer.assign(list(partitions))
            for partition, offset in partitions.items():
                self._consumer.seek(partition, offset)

    def __enter__(self) -> "KafkaPythonConsumer":
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
            with translated():
                polled = self._consumer.poll(timeout_ms=200, max_records=count - len(records))
            records += [record_of(each) for batch in polled.values() for each in batch]
        return records


def what_it_lacks() -> dict[Need, str]:
    """Codecs come with packages that are not kafka-python's own."""
    lacks = {
        Need.NULL_HEADER: "refused by the client",
        Need.NULL_KEY_AND_VALUE: "refused by the client",
        Need.CONSUMER_PROTOCOL: "not in the client",
    }
    codecs = {
        Need.SNAPPY: (kafka.codec.has_snappy(), "python-snappy"),
        Need.LZ4: (kafka.codec.has_lz4(), "lz4"),
        Need.ZSTD: (kafka.codec.has_zstd(), "zstandard"),
    }
    missing = {
        need: f"the package {package} is not installed" for need, (there, package) in codecs.items() if not there
    }
    return lacks | missing


class KafkaPythonDriver:
    """kafka-python, connected to one broker."""

    name = "kafka-python"
    lacks: Mapping[Need, str] = what_it_lacks()

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._admin = kafka.KafkaAdminClient(bootstrap_servers=servers, reconnect_backoff_max_ms=500)

    def close(self) -> None:
        self._admin.close()

    def producer(self, options: ProducerOptions) -> KafkaPythonProducer:
        return KafkaPythonProducer(self._servers, options)

    def consumer(self, topic: str, start: Mapping[int, int], options: ConsumerOptions) -> KafkaPythonConsumer:
        return KafkaPythonConsumer(self._servers, topic, start, options)

    def member(self, options: MemberOptions) -> KafkaPythonMember:
        return KafkaPythonMember(self._servers, options)

    def committed(self, group: str, topic: str) -> dict[int, CommittedOffset]:
        with translated():
            answers = self._admin.list_group_offsets({group: None})[group]
        return {
            partition.partition: CommittedOffset(offset=each.offset, metadata=each.metadata or "")
            for partition, each in answers.items()
            if partition.topic == topic and each.offset >= 0
        }

    def list_groups(self) -> set[str]:
        with translated():
            return {group["group_id"] for group in self._admin.list_groups()}

    def describe_group(self, group: str) -> GroupDescription:
        with translated():
            described = self._admin.describe_groups([group])[group]
        return GroupDescription(state=described["group_state"].upper(), members=len(described["members"]))

    def delete_group(self, group: str) -> None:
        with translated():
            answer = self._admin.delete_groups([group])[group]
        if answer != "OK":
            # kafka-python makes a sentence of the error instead of raising it: "NonEmptyGroupError".
            raise ClientError("NON_EMPTY_GROUP" if "NonEmptyGroup" in answer else f"local: {answer}")

    def offsets_for_times(self, topic: str, times_ms: Mapping[int, int]) -> dict[int, FoundOffset | None]:
        consumer = kafka.KafkaConsumer(bootstrap_servers=self._servers, enable_auto_commit=False)
        asked = {kafka.TopicPartition(topic, number): time_ms for number, time_ms in times_ms.items()}
        with translated(), consumer:
            answers = consumer.offsets_for_times(asked)
        return {
            partition.partition: None if found is None else FoundOffset(offset=found[0], timestamp_ms=found[1])
            for partition, found in answers.items()
        }

    def list_offset(self, topic: str, partition: int, spec: OffsetSpec) -> FoundOffset:
        specs = {
            "earliest": KafkaPythonSpec.EARLIEST,
            "latest": KafkaPythonSpec.LATEST,
            "max-timestamp": KafkaPythonSpec.MAX_TIMESTAMP,
        }
        with translated():
            [found] = self._admin.list_partition_offsets({kafka.TopicPartition(topic, partition): specs[spec]}).values()
        return FoundOffset(offset=found.offset, timestamp_ms=found.timestamp)

    def create_topic(self, topic: str, partitions: int, settings: Mapping[str, str], replicas: int = 1) -> None:
        with translated():
            self._admin.create_topics(
                {topic: {"num_partitions": partitions, "replication_factor": replicas, "configs": dict(settings)}}
            )

    def delete_topic(self, topic: str) -> None:
        with translated():
            self._admin.delete_topics([topic])

    def list_topics(self) -> set[str]:
        with translated():
            return set(self._admin.list_topics())

    def describe_topic(self, topic: str) -> TopicDescription:
        with translated():
            [described] = self._admin.describe_topics([topic])
        if described["error_code"] != 0:
            raise ClientError(error_name(described["error_code"]))
        return TopicDescription(
            topic_id=str(described["topic_id"]),
            partitions=tuple(
                PartitionDescription(
                    number=partition["partition_index"],
                    leader=partition["leader_id"],
                    replicas=tuple(partition["replica_nodes"]),
                    in_sync_replicas=tuple(partition["isr_nodes"]),
                )
                for partition in sorted(described["partitions"], key=lambda each: int(each["partition_index"]))
            ),
        )

    def create_partitions(self, topic: str, total: int) -> None:
        with translated():
            self._admin.create_partitions({topic: total})

    def topic_settings(self, topic: str) -> dict[str, Setting]:
        return self._settings(ConfigResourceType.TOPIC, topic)

    def broker_settings(self, broker_id: int) -> dict[str, Setting]:
        return self._settings(ConfigResourceType.BROKER, str(broker_id))

    def _settings(self, kind: ConfigResourceType, name: str) -> dict[str, Setting]:
        with translated():
            answer = self._admin.describe_configs([ConfigResource(kind, name)], config_filter="all")
        return {
            setting: Setting(
                value=entry["value"],
                is_default=entry["config_source"] == "DEFAULT_CONFIG",
                is_read_only=entry["read_only"],
            )
            for setting, entry in answer[kind.name.lower()][name].items()
        }

    def alter_topic(self, topic: str, changes: Mapping[str, str | None]) -> None:
        operations = {name: ("DELETE" if value is None else "SET", value) for name, value in changes.items()}
        self._alter(topic, operations, incremental=True)

    def replace_topic_settings(self, topic: str, settings: Mapping[str, str]) -> None:
        # `alter_configs(incremental=False)` sends all modified settings again, so a reset of all comes before it.
        with translated():
            self._admin.reset_configs([ConfigResource(ConfigResourceType.TOPIC, topic)], incremental=False)
        self._alter(topic, dict(settings), incremental=False)

    def _alter(self, topic: str, configs: Mapping[str, Any], *, incremental: bool) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, dict(configs))
        with translated():
            answer = self._admin.alter_configs([resource], incremental=incremental)["topic"][topic]
        if answer != "OK":
            # kafka-python makes a sentence of the error instead of raising it: "[Error 40] ...".
            code = re.search(r"Error (\d+)", answer)
            raise ClientError(error_name(int(code[1])) if code else "local: alter_configs", answer)

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        with translated():
            [answer] = self._admin.delete_records({kafka.TopicPartition(topic, partition): before_offset}).values()
        low_watermark: int = answer["low_watermark"]
        return low_watermark

    def describe_cluster(self) -> ClusterDescription:
        with translated():
            cluster = self._admin.describe_cluster()
        return ClusterDescription(
            cluster_id=cluster["cluster_id"],
            controller_id=cluster["controller_id"],
            brokers={broker["broker_id"]: f"{broker['host']}:{broker['port']}" for broker in cluster["brokers"]},
        )

    def log_dirs(self, topic: str) -> dict[int, int]:
        with translated():
            answers = self._admin.describe_log_dirs([topic])
        return {
            partition["partition_index"]: partition["partition_size"]
            for answer in answers
            for directory in answer["log_dirs"]
            for each in directory["topics"]
            if each["name"] == topic
            for partition in each["partitions"]
        }

    def describe_producers(self, topic: str, partition: int) -> list[ProducerState]:
        with translated():
            [answer] = self._admin.describe_producers([kafka.TopicPartition(topic, partition)]).values()
        return [
            ProducerState(producer_id=each.producer_id, epoch=each.producer_epoch, last_sequence=each.last_sequence)
            for each in answer.active_producers
        ]
