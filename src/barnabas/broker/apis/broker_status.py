"""DescribeBrokerStatus: v0, an API of our own. What `barnabas status` shows of a broker.

Behaviour: nothing is waited for, and nothing is read from a disk but how much of it is free. The states of a broker
have Kafka's names; a log directory is online, full (clients can not write) or offline until a restart, with the reason.
"""

from importlib.metadata import PackageNotFoundError, version

from barnabas.broker.request_channel import Request
from barnabas.broker.services import Services
from barnabas.storage.log_directory import LogDirectory
from barnabas.wire.messages.broker_status import (
    DescribeBrokerStatusRequest,
    DescribeBrokerStatusResponse,
    StatusLoadingLog,
    StatusLogDirectory,
)


def handle_describe_broker_status(
    broker: Services, request: Request, body: DescribeBrokerStatusRequest
) -> DescribeBrokerStatusResponse:
    """Answer with what is known at this moment."""
    manager = broker.log_manager
    progress = manager.loading.progress
    answer = DescribeBrokerStatusResponse(
        node_id=broker.node_id,
        cluster_id=broker.cluster_id,
        version=_version(),
        state=broker.state_name(),
        uptime_ms=int((broker.clock.monotonic_seconds() - broker.started_seconds) * 1000),
        topic_count=len(broker.cache.topics),
        partition_count=len(broker.replica_manager.partitions),
        request_count=broker.request_count(),
        recovery_logs_done=progress.logs_done,
        recovery_logs_total=progress.logs_total,
        recovery_bytes_done=progress.bytes_done,
        recovery_bytes_total=progress.bytes_total,
        log_directories=[_directory(broker, directory) for directory in manager.directories],
    )
    if body.include_loading:
        answer.loading = [
            StatusLoadingLog(
                topic=one.partition.topic,
                partition_index=one.partition.partition,
                done_bytes=min(one.done_bytes, one.recovery_bytes),
                total_bytes=one.recovery_bytes,
            )
            for one in manager.loading.all()
        ]
    return answer


def _directory(broker: Services, directory: LogDirectory) -> StatusLogDirectory:
    manager = broker.log_manager
    found = StatusLogDirectory(path=directory.path, log_count=directory.log_count)
    if directory.failure is not None:
        found.state, found.reason = "offline", str(directory.failure)
        found.log_count = sum(1 for owner in manager.offline_partitions.values() if owner is directory)
        return found
    found.state = "full" if directory.is_full else "online"
    logs = manager.current_logs.values()
    found.log_bytes = sum(managed.log.size_bytes for managed in logs if managed.directory is directory)
    found.log_bytes += sum(one.size_bytes for one in manager.loading.in_directory(directory))
    try:
        found.total_bytes, found.free_bytes = manager.disk_space(directory)
    except OSError as error:
        found.reason = str(error)
    return found


def _version() -> str:
    try:
        return version("barnabas")
    except PackageNotFoundError:
        return "unknown"
