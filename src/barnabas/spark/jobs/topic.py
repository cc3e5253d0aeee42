"""A topic as jobs look at it: which offsets it has at one moment, and its records between offsets of partitions.

The driver asks the brokers; the records are read by tasks through the format `barnabas`.

Rule 1: a job asks for the offsets once, and reads just these, whatever arrives meanwhile.
Rule 2: what a job sets itself can not be set by options besides.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.client.admin import describe_configs
from barnabas.client.client import Client
from barnabas.client.offsets import EARLIEST, LATEST, list_offsets, offsets_at
from barnabas.model import TopicPartition
from barnabas.spark.connecting import BOOTSTRAP_SERVERS, read_cluster, shared_client
from barnabas.spark.errors import OptionError
from barnabas.spark.jobs.topics import find_topic
from barnabas.spark.schema import spark_schema
from barnabas.spark.source.failures import plain_errors
from barnabas.spark.source.options import read_batch_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ISOLATION_LEVEL = "kafka.isolation.level"

# What of a topic is read is the job's own business.
_OWN = frozenset({"subscribe", "subscribepattern", "assign", "includeheaders", BOOTSTRAP_SERVERS})
_OWN_PREFIXES = ("starting", "ending")


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Offsets of a partition, from `start` to before `end`."""

    start: int
    end: int

    @property
    def size(self) -> int:
        """How many offsets these are, with or without a record."""
        return max(0, self.end - self.start)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    """What a topic had when it was asked."""

    topic: str
    topic_id: str
    spans: Mapping[int, Span]
    settings: Mapping[str, str]

    @property
    def is_compacted(self) -> bool:
        """Whether records may vanish from the middle of a partition."""
        return "compact" in self.settings.get("cleanup.policy", "")


class Topic:
    """One topic of one cluster."""

    def __init__(
        self, spark: SparkSession, name: str, bootstrap_servers: str, options: Mapping[str, str] | None = None
    ) -> None:
        """Check the options; raises OptionError."""
        for option in options or {}:
            if option.lower() in _OWN or option.lower().startswith(_OWN_PREFIXES):
                raise OptionError(option, "is not for this job, which says itself what is read of which topic")
        self.name = name
        self._spark = spark
        self._given = {BOOTSTRAP_SERVERS: bootstrap_servers, "includeHeaders": "true", **(options or {})}
        self._cluster = read_cluster(self._given)
        self._read = read_batch_options(self._given | {"subscribe": name})

    @property
    def isolation_level(self) -> str:
        """Whether records of open and aborted transactions are seen, in Kafka's words."""
        return self._read.isolation.name.lower()

    def state(self) -> TopicState:
        """Ask for the offsets and settings of now; raises PipelineError, also when there is no such topic."""
        with plain_errors(f"looking at topic {self.name!r}"):
            client = self._client()
            assigned = find_topic(client, self.name)
            first = offsets_at(client, assigned.partitions, EARLIEST, self._read.isolation)
            last = offsets_at(client, assigned.partitions, LATEST, self._read.isolation)
            entries = describe_configs(client, [self.name])[self.name]
        return TopicState(
            topic=self.name,
            topic_id=str(assigned.topic_ids[self.name]),
            spans={each.partition: Span(start=first[each], end=last[each]) for each in assigned.partitions},
            settings={name: entry.value for name, entry in entries.items() if entry.value is not None},
        )

    def offsets_from(self, timestamp_ms: int, partitions: Mapping[int, Span]) -> dict[int, int]:
        """Return the first offset at or after a time, for the partitions that have one."""
        asked = {TopicPartition(self.name, partition): timestamp_ms for partition in partitions}
        with plain_errors(f"looking for a time in topic {self.name!r}"):
            found = list_offsets(self._client(), asked, self._read.isolation)
        return {place.partition: answer.offset for place, answer in found.items() if answer.offset >= 0}

    def records(self, spans: Mapping[int, Span]) -> DataFrame:
        """Return the records of some offsets, with headers."""
        wanted = {str(partition): span for partition, span in sorted(spans.items()) if span.size}
        if not wanted:
            return self._spark.createDataFrame([], spark_schema(include_headers=True))
        return (
            self._spark.read.format("barnabas")
            .options(**self._given)
            .option("assign", json.dumps({self.name: [int(partition) for partition in wanted]}))
            .option("startingOffsets", json.dumps({self.name: {each: span.start for each, span in wanted.items()}}))
            .option("endingOffsets", json.dumps({self.name: {each: span.end for each, span in wanted.items()}}))
            .load()
        )

    def _client(self) -> Client:
        return shared_client(self._cluster)
