"""A topic as one table: what is archived from the archive, and the rest from the broker, each record once.

    table(spark, "orders", archive="lake/orders", bootstrap_servers="127.0.0.1:9092").createOrReplaceTempView("orders")

Rule 1: the broker is asked for what lies behind the archive's commits, and for nothing else. So the two parts have no
record in common, and none is missing: where the log begins only behind the archive's end, that is an error.
Rule 2: the archive's part is as it was when the table was made; the broker's part ends where a query finds its end.
Rule 3: of an archive that keeps the last record of every key, the table does so too, over both parts; records without a
key, which such an archive has among its dead letters, are all there.
"""

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession

from barnabas.client.client import Client
from barnabas.client.offsets import EARLIEST, LATEST, IsolationLevel, offsets_at
from barnabas.model import ZERO_TOPIC_ID
from barnabas.spark.archives.archive import Archive, open_archive
from barnabas.spark.archives.manifest import UPSERT, Commit, end_offsets
from barnabas.spark.archives.upserting import last_of_keys, without_deleted
from barnabas.spark.connecting import read_cluster
from barnabas.spark.errors import DataLossError, PipelineError
from barnabas.spark.jobs.places import by_number, offsets_option
from barnabas.spark.jobs.topics import cluster_options, find_topic
from barnabas.spark.schema import spark_schema
from barnabas.spark.source.failures import plain_errors


def table(
    spark: SparkSession,
    topic: str,
    *,
    archive: str,
    bootstrap_servers: str,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return archive and live tail of a topic, with the columns that reading it with headers has.

    Args:
        spark: The session that queries run in.
        topic: The topic.
        archive: The folder of its archive.
        bootstrap_servers: A broker of the cluster.
        options: Further options of the source, as `kafka.security.protocol`.

    Raises:
        PipelineError: There is no archive, or it is of another topic.
        DataLossError: The topic was made again, or records behind the archive's end are gone.
    """
    opened = open_archive(spark, archive)
    description = opened.description
    if description.topic != topic:
        raise PipelineError(f"{archive} is the archive of topic {description.topic!r}, and not of {topic!r}")
    given = {**cluster_options(bootstrap_servers, options), "kafka.isolation.level": description.isolation_level}
    commits = opened.commits()
    live = {
        **given,
        "subscribe": topic,
        "includeHeaders": "true",
        "startingOffsets": offsets_option(topic, live_start(opened, commits, given)),
    }
    columns = spark_schema(include_headers=True).names
    rest = spark.read.format("barnabas").options(**live).load()
    both = opened.records(commits).select(*columns).unionAll(rest.select(*columns))
    if description.mode == UPSERT:
        return without_deleted(last_of_keys(both))
    return both


def live_start(archive: Archive, commits: Sequence[Commit], options: Mapping[str, str]) -> dict[int, int]:
    """Return where the broker's part begins in each partition, behind these commits of the archive.

    Raises:
        DataLossError: Something is missing there.
    """
    description, cluster = archive.description, read_cluster(options)
    topic, folder = description.topic, archive.files.folder
    isolation = IsolationLevel[description.isolation_level.upper()]
    with plain_errors(f"looking at topic {topic!r}"), Client(cluster.bootstrap_servers, cluster.options) as client:
        assigned = find_topic(client, topic)
        topic_id = assigned.topic_ids[topic]
        if topic_id != ZERO_TOPIC_ID and str(topic_id) != description.topic_id:
            raise DataLossError(
                f"{folder} is the archive of an earlier topic {topic!r}, which was deleted and created again since"
            )
        first = by_number(offsets_at(client, assigned.partitions, EARLIEST, isolation))
        last = by_number(offsets_at(client, assigned.partitions, LATEST, isolation))
    ends = end_offsets(description, commits)
    for partition in sorted(first):
        end = ends.get(partition, 0)
        if first[partition] > end:
            raise DataLossError(
                f"{topic}-{partition} begins at offset {first[partition]}, but the archive {folder} ends at {end}: "
                "the records between are gone"
            )
        if last[partition] < end:
            raise DataLossError(
                f"{topic}-{partition} ends at offset {last[partition]}, but the archive {folder} has it up to {end}"
            )
    gone = sorted(set(ends) - set(first))
    if gone:
        raise DataLossError(f"{topic}-{gone[0]} is in the archive {folder}, but the topic has no such partition")
    return {partition: ends.get(partition, 0) for partition in first}
