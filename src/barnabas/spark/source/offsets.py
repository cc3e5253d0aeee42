"""What a cluster says to the options of a query: which partitions there are, and which offsets are meant.

Questions go to brokers through a `Client`. Rule 1: a regular expression is one of Python's `re`, which is closest to
Java's, and must match the whole name. It comes from whoever wrote the query and runs on that query's own driver.
"""

import logging
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from barnabas.client.admin import list_topics
from barnabas.client.client import Client
from barnabas.client.connection import ClientError
from barnabas.client.fetched import FetchedBatch, whole_batches
from barnabas.client.fetcher import Fetcher, FetchOptions
from barnabas.client.metadata import TopicMetadata
from barnabas.client.offsets import EARLIEST, LATEST, IsolationLevel, list_offsets, offsets_at
from barnabas.model import TopicPartition
from barnabas.spark.errors import DataLossError, OptionError, PipelineError
from barnabas.spark.source.failures import ALLOW_LOSS
from barnabas.spark.source.offset_limits import AtTime, AtTimes, Named, OffsetLimit, SpecificOffsets
from barnabas.spark.source.options import Subscription
from barnabas.spark.source.planning import missing_and_unwanted
from barnabas.wire.errors import ApiError, ErrorCode

logger = logging.getLogger(__name__)

# A sample of a partition, which its bytes per offset are taken from.
_SAMPLE_BYTES = 128 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """The partitions of a query at one moment, and the ids of their topics."""

    partitions: tuple[TopicPartition, ...]
    topic_ids: Mapping[str, UUID]


def assigned_partitions(client: Client, subscription: Subscription, *, missing_are_fine: bool = False) -> Assigned:
    """Return what a subscription means now.

    Args:
        client: Whom to ask.
        subscription: What was asked for.
        missing_are_fine: Whether topics and partitions that are not there are left out, instead of being an error.
    """
    client.forget_metadata()
    if subscription.pattern:
        pattern = re.compile(subscription.pattern)
        topics = {topic.name: topic for topic in list_topics(client) if pattern.fullmatch(topic.name)}
    else:
        topics = _topics_named(client, subscription, missing_are_fine=missing_are_fine)
    if subscription.partitions:
        partitions = []
        for partition in subscription.partitions:
            if partition.topic in topics and partition.partition < len(topics[partition.topic].partitions):
                partitions.append(partition)
            elif not missing_are_fine:
                count = len(topics[partition.topic].partitions)
                raise OptionError("assign", f"names {partition}, but topic {partition.topic!r} has {count} partitions")
    else:
        partitions = [
            TopicPartition(name, partition.partition) for name in topics for partition in topics[name].partitions
        ]
    ids = {name: topics[name].topic_id for name in sorted({partition.topic for partition in partitions})}
    return Assigned(partitions=tuple(sorted(partitions)), topic_ids=ids)


def _topics_named(client: Client, subscription: Subscription, *, missing_are_fine: bool) -> dict[str, TopicMetadata]:
    option = "assign" if subscription.partitions else "subscribe"
    names = sorted({*subscription.topics, *(partition.topic for partition in subscription.partitions)})
    answer = client.retrying(lambda: client.fetch_metadata(names))
    topics: dict[str, TopicMetadata] = {}
    for name in names:
        if name in answer.topics:
            topics[name] = answer.topics[name]
            continue
        code = answer.missing.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if code == ErrorCode.INVALID_TOPIC_EXCEPTION:
            raise OptionError(option, f"names {name!r}, which can not be the name of a topic")
        if code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            topics[name] = client.topic(name)  # It waits for what passes, and raises what does not.
        elif not missing_are_fine:
            raise OptionError(option, f"names topic {name!r}, but there is no such topic")
    return topics


def resolve_limit(
    client: Client,
    partitions: Collection[TopicPartition],
    limit: OffsetLimit,
    isolation: IsolationLevel,
    *,
    is_late_an_error: bool = False,
) -> dict[TopicPartition, int]:
    """Return the offset that is meant for each partition.

    Args:
        client: Whom to ask.
        partitions: All partitions of the query.
        limit: What the options say.
        isolation: Whether `latest` is the high watermark or the last stable offset.
        is_late_an_error: Whether a time that no record has come after is an error; otherwise it means the end.

    Raises:
        OptionError: Partitions are named that there are not, or not all are named.
        PipelineError: No record is as late as the time that was asked for.
    """
    if isinstance(limit, Named):
        return offsets_at(client, partitions, EARLIEST if limit is Named.EARLIEST else LATEST, isolation)
    if isinstance(limit, SpecificOffsets):
        _check_all_named(limit.option, limit.offsets, partitions)
        found = dict(limit.offsets)
        for end in (EARLIEST, LATEST):
            wanted = [partition for partition, offset in limit.offsets.items() if offset == end]
            found |= offsets_at(client, wanted, end, isolation) if wanted else {}
        return found
    if isinstance(limit, AtTime):
        timestamps = dict.fromkeys(partitions, limit.timestamp_ms)
    else:
        _check_all_named(limit.option, limit.timestamps_ms, partitions)
        timestamps = dict(limit.timestamps_ms)
    return _resolve_times(client, limit, timestamps, isolation, is_late_an_error=is_late_an_error)


def _resolve_times(
    client: Client,
    limit: AtTime | AtTimes,
    timestamps: Mapping[TopicPartition, int],
    isolation: IsolationLevel,
    *,
    is_late_an_error: bool,
) -> dict[TopicPartition, int]:
    found = {partition: answer.offset for partition, answer in list_offsets(client, timestamps, isolation).items()}
    late = sorted(partition for partition, offset in found.items() if offset < 0)
    if late and is_late_an_error:
        raise PipelineError(
            f"option '{limit.option}' asks for {timestamps[late[0]]}, but {late[0]} has no record as late as that; "
            f"with option 'startingOffsetsByTimestampStrategy' set to latest the query would begin at its end"
        )
    return found | (offsets_at(client, late, LATEST, isolation) if late else {})


def _check_all_named(option: str, named: Mapping[TopicPartition, int], partitions: Collection[TopicPartition]) -> None:
    missing, unwanted = missing_and_unwanted(named, partitions)
    if missing:
        raise OptionError(option, f"must name every partition, but {missing[0]} is not in it; -2 there means earliest")
    if unwanted:
        raise OptionError(option, f"names {unwanted[0]}, which is not among the partitions of the query")


def check_in_range(
    client: Client,
    limit: OffsetLimit,
    offsets: Mapping[TopicPartition, int],
    isolation: IsolationLevel,
    *,
    fail_on_data_loss: bool,
) -> dict[TopicPartition, int]:
    """Return the offsets, those that were given as numbers brought into what the partitions have.

    Raises:
        DataLossError: One lies outside, and `fail_on_data_loss` is set.
    """
    if not isinstance(limit, SpecificOffsets):
        return dict(offsets)
    first = offsets_at(client, offsets.keys(), EARLIEST, isolation)
    last = offsets_at(client, offsets.keys(), LATEST, isolation)
    checked = {}
    for partition, offset in offsets.items():
        checked[partition] = min(max(offset, first[partition]), last[partition])
        if checked[partition] == offset:
            continue
        has = f"option '{limit.option}' asks for offset {offset} of {partition}, which has {first[partition]} to "
        if fail_on_data_loss:
            raise DataLossError(f"{has}{last[partition]}; {ALLOW_LOSS}")
        logger.warning("%s%s; it is taken as %s", has, last[partition], checked[partition])
    return checked


def sample_densities(client: Client, starts: Mapping[TopicPartition, int]) -> dict[TopicPartition, float]:
    """Return about how many bytes an offset takes in each partition, from a look at the beginning of what is read.

    Where batches are larger than a sample, a broker sends the first one whole and nothing of the other partitions:
    those that have records are taken to be as the others of their topic are, so that all are divided alike. What has
    nothing is left out; a failure is nobody's: whoever reads will say what is wrong.
    """
    options = FetchOptions(
        fetch_max_wait_ms=0, max_partition_fetch_bytes=_SAMPLE_BYTES, auto_offset_reset="earliest", check_crcs=False
    )
    densities = {}
    try:
        sample = Fetcher(client, starts, options).poll() if starts else []
    except (ApiError, ClientError) as error:
        logger.debug("no sample of the partitions could be taken: %s", error)
        return {}
    for fetched in sample:
        batches = list(whole_batches(fetched.data))
        if batches:
            densities[fetched.partition] = _density(batches, fetched.fetch_offset)
    unseen = [each.partition for each in sample if each.high_watermark > each.fetch_offset]
    return _as_others_of_their_topics(unseen, densities) | densities


def _density(batches: Sequence[FetchedBatch], fetch_offset: int) -> float:
    """Return how many bytes an offset takes in whole batches; the first may begin before what was asked for."""
    header = batches[0].header
    first = fetch_offset if header is None else min(header.base_offset, fetch_offset)
    return sum(len(each.data) for each in batches) / max(1, batches[-1].last_offset + 1 - first)


def _as_others_of_their_topics(
    partitions: Collection[TopicPartition], densities: Mapping[TopicPartition, float]
) -> dict[TopicPartition, float]:
    by_topic: dict[str, list[float]] = {}
    for partition, density in densities.items():
        by_topic.setdefault(partition.topic, []).append(density)
    means = {topic: sum(found) / len(found) for topic, found in by_topic.items()}
    return {each: means[each.topic] for each in partitions if each.topic in means}
