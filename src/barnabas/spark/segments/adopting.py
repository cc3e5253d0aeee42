"""Where a bulk load goes, and who adopts it: a running broker that is asked, or the directories of a stopped one.

Rule 1: the folders of the partitions are those of the broker: from its answer to DescribeLogDirs, or from the option
`path`, for workers that see them under another name or whose broker is stopped.
Rule 2: errors of the client and of the start of a broker become sentences here.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from barnabas.client.admin import describe_configs
from barnabas.client.bulk_load import AdoptedRange, adopt_segments, adopted_load
from barnabas.client.client import Client
from barnabas.client.connection import ClientError
from barnabas.config import ConfigError, LogConfig
from barnabas.spark.connecting import Cluster, read_cluster
from barnabas.spark.errors import PipelineError
from barnabas.spark.segments.log_files import partitions_in
from barnabas.spark.segments.options import WriteOptions, read_write_options
from barnabas.storage.files import DirectoryLockedError, OsFiles
from barnabas.storage.load_journal import AdoptedLoad, LoadJournal, LoadJournalError
from barnabas.wire.errors import ApiError
from barnabas.wire.messages.log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest

# Checking and stamping many gigabytes takes its time, and nothing else is asked over this connection.
ADOPTION_TIMEOUT_MS = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTarget:
    """The topic of a load, as tasks need it."""

    topic: str
    folders: tuple[str, ...]
    """The folder of each partition, by its number."""
    max_message_bytes: int
    cluster: Cluster | None
    """The running broker, or None when it is stopped."""


def find_target(options: WriteOptions, given: Mapping[str, str]) -> LoadTarget:
    """Find the folders of a topic's partitions; raises PipelineError."""
    cluster = read_cluster(given) if options.has_broker else None
    if cluster is None:
        folders = _local_folders(options)
        return LoadTarget(
            topic=options.topic, folders=folders, max_message_bytes=LogConfig().max_message_bytes, cluster=None
        )
    try:
        with Client(cluster.bootstrap_servers, cluster.options) as client:
            count = len(client.topic(options.topic).partitions)
            entry = describe_configs(client, [options.topic])[options.topic]["max.message.bytes"]
            folders = _local_folders(options) if options.paths else _broker_folders(client, options.topic, count)
    except (ApiError, ClientError) as error:
        raise PipelineError(f"topic {options.topic!r} can not be loaded: {error}") from None
    if len(folders) != count:
        raise PipelineError(
            f"topic {options.topic!r} has {count} partitions, but {len(folders)} are in {', '.join(options.paths)}"
        )
    limit = int(entry.value or LogConfig().max_message_bytes)
    return LoadTarget(topic=options.topic, folders=folders, max_message_bytes=limit, cluster=cluster)


def _local_folders(options: WriteOptions) -> tuple[str, ...]:
    """Return the folders below the option `path`."""
    found = {
        partition.partition: files.directory
        for partition, files in partitions_in(options.paths).items()
        if partition.topic == options.topic
    }
    where = ", ".join(options.paths)
    if not found:
        raise PipelineError(f"topic {options.topic!r} is not in {where}: a topic is created before it is loaded")
    if sorted(found) != list(range(len(found))):
        raise PipelineError(f"partitions of topic {options.topic!r} are missing in {where}: it has {sorted(found)}")
    return tuple(found[index] for index in range(len(found)))


def _broker_folders(client: Client, topic: str, count: int) -> tuple[str, ...]:
    """Return the folders as the broker says them."""
    asked = DescribableLogDirTopic(topic=topic, partitions=list(range(count)))
    answer = client.request(DescribeLogDirsRequest(topics=[asked]))
    found = {
        partition.partition_index: os.path.join(result.log_dir, f"{topic}-{partition.partition_index}")
        for result in answer.results
        for each in result.topics
        if each.name == topic
        for partition in each.partitions
        if not partition.is_future_key
    }
    missing = [index for index in range(count) if not os.path.isdir(found.get(index, ""))]
    if missing:
        raise PipelineError(
            f"{topic}-{missing[0]} is in {found.get(missing[0], 'no directory')} on its broker, which is not there on "
            "this machine: bulk load needs the broker's disk, and option 'path' where it has another name"
        )
    return tuple(found[index] for index in range(count))


def adopt(target: LoadTarget, options: WriteOptions, load_id: str, partitions: Sequence[int]) -> list[AdoptedRange]:
    """Let a load be adopted, and return where its records are; raises PipelineError."""
    try:
        if target.cluster is None:
            return _adopt_stopped(target, options, load_id, partitions)
        patient = replace(
            target.cluster.options,
            request_timeout_ms=ADOPTION_TIMEOUT_MS,
            default_api_timeout_ms=max(target.cluster.options.default_api_timeout_ms, 60_000),
        )
        with Client(target.cluster.bootstrap_servers, patient) as client:
            return adopt_segments(client, load_id, target.topic, partitions, check_crcs=options.check_crcs)
    except ApiError as error:
        raise PipelineError(error.message) from None
    except ClientError as error:
        raise _not_adopted(target, load_id, error) from None


def _not_adopted(target: LoadTarget, load_id: str, error: Exception) -> PipelineError:
    return PipelineError(f"load {load_id} of topic {target.topic!r} is not adopted: {error}")


def _adopt_stopped(
    target: LoadTarget, options: WriteOptions, load_id: str, partitions: Sequence[int]
) -> list[AdoptedRange]:
    # Every task imports this module, and only a load without a broker needs one: that is imported here.
    from barnabas.broker.bulk_loads import LoadRequest
    from barnabas.server.broker_server import StartError
    from barnabas.server.stopped_load import adopt_stopped
    from barnabas.storage.log_directory import LogDirectoryError
    from barnabas.storage.log_manager import NoLogDirectoryError

    request = LoadRequest(
        load_id=load_id, topic=target.topic, partitions=tuple(partitions), check_crcs=options.check_crcs
    )
    try:
        return _ranges(adopt_stopped(options.paths, request))
    except (StartError, LogDirectoryError, NoLogDirectoryError, DirectoryLockedError, ConfigError) as error:
        raise _not_adopted(target, load_id, error) from None


def _ranges(load: AdoptedLoad) -> list[AdoptedRange]:
    return [
        AdoptedRange(partition=one.partition, base_offset=one.base_offset, end_offset=one.end_offset)
        for one in load.partitions
    ]


def adopted_ranges(given: Mapping[str, str], load_id: str) -> list[AdoptedRange]:
    """Return where the records of an adopted load are: the broker says it, or the journal of one that is stopped."""
    options = read_write_options(given)
    try:
        if options.has_broker:
            cluster = read_cluster(given)
            with Client(cluster.bootstrap_servers, cluster.options) as client:
                return adopted_load(client, load_id, options.topic)
        for path in options.paths:
            journal = LoadJournal(OsFiles(), path)
            journal.read()
            found = journal.find(load_id)
            if found is not None:
                return _ranges(found)
    except (ApiError, ClientError, LoadJournalError) as error:
        raise PipelineError(f"load {load_id} is adopted, but its offsets can not be told: {error}") from None
    return []
