"""Kafka's Java clients, in the JVM of `java_machine`."""

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from tests.compat.drivers.java_machine import JavaClients, record_of, text
from tests.compat.model import (
    DEADLINE_S,
    Assignor,
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
    Polled,
    Position,
    ProducerOptions,
    ProducerState,
    Record,
    Setting,
    TopicDescription,
    isolation_level,
)

DEADLINE_MS = int(DEADLINE_S * 1000)
ASSIGNORS: dict[Assignor, str] = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}


class JavaProducer:
    """A KafkaProducer."""

    def __init__(self, clients: JavaClients, servers: str, options: ProducerOptions) -> None:
        settings: dict[str, object] = {
            "compression.type": options.codec,
            "max.request.size": options.request_bytes_max,
            "batch.size": options.batch_bytes,
            "delivery.timeout.ms": DEADLINE_MS,
        }
        # The defaults (acks=all, idempotent) are left alone where they are what is wanted.
        if options.acks != "all":
            settings |= {"acks": options.acks, "enable.idempotence": "false"}
        elif options.idempotent is not None:
            settings["enable.idempotence"] = str(options.idempotent).lower()
        if options.transactional_id is not None:
            settings |= {
                "transactional.id": options.transactional_id,
                "transaction.timeout.ms": options.transaction_timeout_ms,
            }
        self._clients = clients
        self._handle = clients.call("open_producer", servers=servers, settings=settings)

    def __enter__(self) -> "JavaProducer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._clients.call("close_producer", handle=self._handle)

    def send(self, topic: str, records: Sequence[NewRecord]) -> list[Position]:
        asked = [
            {
                "partition": record.partition,
                "timestamp": record.timestamp_ms,
                "key": text(record.key),
                "value": text(record.value),
                "headers": [[name, text(value)] for name, value in record.headers],
            }
            for record in records
        ]
        answers = self._clients.call("send", handle=self._handle, topic=topic, records=asked)
        return [Position(partition=partition, offset=offset) for partition, offset in answers]

    def init_transactions(self) -> None:
        self._clients.call("init_transactions", handle=self._handle)

    def begin_transaction(self) -> None:
        self._clients.call("begin_transaction", handle=self._handle)

    def send_offsets(self, topic: str, offsets: Mapping[int, int], member: Member) -> None:
        assert isinstance(member, JavaMember)
        self._clients.call(
            "send_offsets", handle=self._handle, topic=topic, offsets=dict(offsets), member=member.handle
        )

    def commit_transaction(self) -> None:
        self._clients.call("commit_transaction", handle=self._handle)

    def abort_transaction(self) -> None:
        self._clients.call("abort_transaction", handle=self._handle)


class JavaConsumer:
    """A KafkaConsumer with assigned partitions."""

    def __init__(
        self, clients: JavaClients, servers: str, topic: str, start: Mapping[int, int], options: ConsumerOptions
    ) -> None:
        settings: dict[str, object] = {
            "enable.auto.commit": "false",
            "auto.offset.reset": options.reset,
            "fetch.max.wait.ms": options.fetch_wait_ms_max,
        }
        if options.read_committed is not None:
            settings["isolation.level"] = isolation_level(options.read_committed)
        self._clients = clients
        self._handle = clients.call("open_consumer", servers=servers, topic=topic, start=start, settings=settings)

    def __enter__(self) -> "JavaConsumer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._clients.call("close_consumer", handle=self._handle)

    def take(self, count: int) -> list[Record]:
        answers = self._clients.call("take", handle=self._handle, count=count, deadline_ms=DEADLINE_MS)
        return [record_of(answer) for answer in answers]


class JavaMember:
    """A subscribed KafkaConsumer."""

    def __init__(self, clients: JavaClients, servers: str, options: MemberOptions) -> None:
        settings: dict[str, object] = {
            "group.id": options.group,
            "group.protocol": options.protocol,
            "enable.auto.commit": "false",
            "auto.offset.reset": options.reset,
            "isolation.level": isolation_level(options.read_committed),
            "fetch.max.wait.ms": 100,
        }
        if options.protocol == "classic":
            settings |= {
                "partition.assignment.strategy": ASSIGNORS[options.assignor],
                "session.timeout.ms": options.session_timeout_ms,
                "heartbeat.interval.ms": 200,
            }
        if options.instance_id is not None:
            settings["group.instance.id"] = options.instance_id
        self._clients = clients
        self.handle = clients.call("open_member", servers=servers, topic=options.topic, settings=settings)

    def __enter__(self) -> "JavaMember":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._clients.call("close_member", handle=self.handle)

    def poll(self, *, commit: bool) -> Polled:
        answer = self._clients.call("poll_member", handle=self.handle, commit=commit)
        return Polled(
            records=[record_of(each) for each in answer["records"]],
            assignment=frozenset(answer["assignment"]),
            rebalances=answer["rebalances"],
        )

    def commit(self, offsets: Mapping[int, CommittedOffset]) -> None:
        asked = {partition: [each.offset, each.metadata] for partition, each in offsets.items()}
        self._clients.call("commit_member", handle=self.handle, offsets=asked)


class JavaDriver:
    """The Java clients, connected to one broker."""

    name = "Java clients"
    lacks: Mapping[Need, str] = {Need.LEGACY_ALTER: "removed from the client in 4.0"}

    def __init__(self, clients: JavaClients, servers: str) -> None:
        self._clients = clients
        self._servers = servers

    def _call(self, call: str, /, **arguments: object) -> Any:
        return self._clients.call(call, servers=self._servers, **arguments)

    def close(self) -> None:
        self._call("close_admin")

    def producer(self, options: ProducerOptions) -> JavaProducer:
        return JavaProducer(self._clients, self._servers, options)

    def consumer(self, topic: str, start: Mapping[int, int], options: ConsumerOptions) -> JavaConsumer:
        return JavaConsumer(self._clients, self._servers, topic, start, options)

    def member(self, options: MemberOptions) -> JavaMember:
        return JavaMember(self._clients, self._servers, options)

    def committed(self, group: str, topic: str) -> dict[int, CommittedOffset]:
        answers = self._call("committed", group=group, topic=topic)
        return {
            int(partition): CommittedOffset(offset=offset, metadata=metadata)
            for partition, (offset, metadata) in answers.items()
        }

    def list_groups(self) -> set[str]:
        return set(self._call("list_groups"))

    def describe_group(self, group: str) -> GroupDescription:
        state, members = self._call("describe_group", group=group)
        return GroupDescription(state=state.replace("_", ""), members=members)

    def delete_group(self, group: str) -> None:
        self._call("delete_group", group=group)

    def offsets_for_times(self, topic: str, times_ms: Mapping[int, int]) -> dict[int, FoundOffset | None]:
        answer = self._call("offsets_for_times", topic=topic, times=times_ms)
        return {
            int(number): None if found is None else FoundOffset(offset=found[0], timestamp_ms=found[1])
            for number, found in answer.items()
        }

    def list_offset(self, topic: str, partition: int, spec: OffsetSpec) -> FoundOffset:
        offset, timestamp_ms = self._call("list_offset", topic=topic, partition=partition, spec=spec)
        return FoundOffset(offset=offset, timestamp_ms=timestamp_ms)

    def create_topic(self, topic: str, partitions: int, settings: Mapping[str, str], replicas: int = 1) -> None:
        self._call("create_topic", topic=topic, partitions=partitions, replicas=replicas, configs=dict(settings))

    def delete_topic(self, topic: str) -> None:
        self._call("delete_topic", topic=topic)

    def list_topics(self) -> set[str]:
        return set(self._call("list_topics"))

    def describe_topic(self, topic: str) -> TopicDescription:
        answer = self._call("describe_topic", topic=topic)
        return TopicDescription(
            topic_id=answer["topic_id"],
            partitions=tuple(
                PartitionDescription(
                    number=partition["number"],
                    leader=partition["leader"],
                    replicas=tuple(partition["replicas"]),
                    in_sync_replicas=tuple(partition["in_sync_replicas"]),
                )
                for partition in answer["partitions"]
            ),
        )

    def create_partitions(self, topic: str, total: int) -> None:
        self._call("create_partitions", topic=topic, total=total)

    def topic_settings(self, topic: str) -> dict[str, Setting]:
        return {name: Setting(**entry) for name, entry in self._call("settings", kind="TOPIC", name=topic).items()}

    def broker_settings(self, broker_id: int) -> dict[str, Setting]:
        answer = self._call("settings", kind="BROKER", name=str(broker_id))
        return {name: Setting(**entry) for name, entry in answer.items()}

    def alter_topic(self, topic: str, changes: Mapping[str, str | None]) -> None:
        self._call("alter_topic", topic=topic, changes=dict(changes))

    def replace_topic_settings(self, topic: str, settings: Mapping[str, str]) -> None:
        raise NotImplementedError(self.lacks[Need.LEGACY_ALTER])

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        low_watermark: int = self._call("delete_records", topic=topic, partition=partition, before=before_offset)
        return low_watermark

    def describe_cluster(self) -> ClusterDescription:
        answer = self._call("describe_cluster")
        return ClusterDescription(
            cluster_id=answer["cluster_id"],
            controller_id=answer["controller_id"],
            brokers={int(number): address for number, address in answer["brokers"].items()},
        )

    def log_dirs(self, topic: str) -> dict[int, int]:
        return {int(number): size for number, size in self._call("log_dirs", topic=topic).items()}

    def describe_producers(self, topic: str, partition: int) -> list[ProducerState]:
        return [
            ProducerState(producer_id=producer_id, epoch=epoch, last_sequence=last_sequence)
            for producer_id, epoch, last_sequence in self._call("describe_producers", topic=topic, partition=partition)
        ]
