"""Archives as Delta or Iceberg tables, where Spark has those formats; Parquet needs none of this.

    delta      the table is the folder `data` of the archive
    iceberg    the table is `data.rows` of a catalog over the folder, which is set up in the session under our name

Rule 1: rows carry the number of their commit in the column `commit`. Writing a commit replaces the rows that have its
number, so that a commit that is written twice is there once; rows of a number that the archive's manifest does not have
are not read.
Rule 2: in mode "upsert" rows are merged by partition and key, and only by later offsets, so that to do it twice changes
nothing.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession, functions

from barnabas.spark.archives.files import Files
from barnabas.spark.archives.manifest import DATA, PARQUET, UPSERT, ArchiveDescription
from barnabas.spark.errors import OptionError, PipelineError
from barnabas.spark.schema import spark_schema

DELTA, ICEBERG = "delta", "iceberg"
TABLE_FORMATS = (PARQUET, DELTA, ICEBERG)
COMMIT = "commit"

_CLASSES = {
    DELTA: "org.apache.spark.sql.delta.sources.DeltaDataSource",
    ICEBERG: "org.apache.iceberg.spark.SparkCatalog",
}
_REMEDIES = {
    DELTA: "--conf spark.jars.packages=io.delta:delta-spark_2.13:VERSION "
    "--conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension "
    "--conf spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog",
    ICEBERG: "--conf spark.jars.packages=org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:VERSION "
    "--conf spark.sql.extensions=org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
}


def check_table_format(spark: SparkSession, table_format: str) -> None:
    """Raise OptionError when Spark has no such format."""
    if table_format not in TABLE_FORMATS:
        raise OptionError("table_format", f"is {table_format!r}, but has to be one of: {', '.join(TABLE_FORMATS)}")
    if table_format == PARQUET:
        return
    jvm: Any = spark._jvm
    try:
        jvm.Thread.currentThread().getContextClassLoader().loadClass(_CLASSES[table_format])
    except Exception as error:  # Java's ClassNotFoundException.
        raise OptionError(
            "table_format",
            f"is {table_format}, which this Spark does not have; start it with {_REMEDIES[table_format]} "
            f"in a VERSION for Spark {spark.version}",
        ) from error


def read_table(spark: SparkSession, files: Files, description: ArchiveDescription, numbers: Sequence[int]) -> DataFrame:
    """Return the rows of these commits; in mode "upsert", all of them."""
    name = _identifier(spark, files, description)
    if not numbers or not _exists(spark, name, files, description):
        return spark.createDataFrame([], spark_schema(include_headers=True))
    rows = spark.table(name)
    if description.mode == UPSERT:
        return rows.drop(COMMIT)
    last = max(numbers)
    chosen = functions.col(COMMIT) <= last if len(numbers) == last + 1 else functions.col(COMMIT).isin(list(numbers))
    return rows.where(chosen).drop(COMMIT)


def append_rows(frame: DataFrame, files: Files, description: ArchiveDescription, number: int) -> None:
    """Write the rows of a commit, in the place of those that an attempt before may have written."""
    spark = frame.sparkSession
    name = _identifier(spark, files, description)
    rows = frame.withColumn(COMMIT, functions.lit(number).cast("bigint"))
    with _told(description):
        if description.table_format == DELTA:
            writer = rows.write.format(DELTA).mode("overwrite").option("replaceWhere", f"{COMMIT} = {number}")
            writer.save(files.path(DATA))
        elif not _exists(spark, name, files, description):
            rows.writeTo(name).using(ICEBERG).create()
        else:
            rows.writeTo(name).overwrite(functions.col(COMMIT) == number)


def merge_rows(frame: DataFrame, files: Files, description: ArchiveDescription, number: int) -> None:
    """Merge the last records of keys into the table; one without a value deletes its key."""
    spark = frame.sparkSession
    name = _identifier(spark, files, description)
    rows = frame.withColumn(COMMIT, functions.lit(number).cast("bigint"))
    with _told(description):
        if not _exists(spark, name, files, description):
            none = rows.limit(0)
            if description.table_format == DELTA:
                none.write.format(DELTA).mode("append").save(files.path(DATA))
            else:
                none.writeTo(name).using(ICEBERG).create()
        rows.createOrReplaceTempView("barnabas_merged")
        spark.sql(
            f"MERGE INTO {name} kept USING barnabas_merged new "
            "ON kept.partition = new.partition AND kept.key = new.key "
            "WHEN MATCHED AND new.offset > kept.offset AND new.value IS NULL THEN DELETE "
            "WHEN MATCHED AND new.offset > kept.offset THEN UPDATE SET * "
            "WHEN NOT MATCHED AND new.value IS NOT NULL THEN INSERT *"
        )
        spark.catalog.dropTempView("barnabas_merged")


def _identifier(spark: SparkSession, files: Files, description: ArchiveDescription) -> str:
    """Return the name of the table in SQL."""
    if description.table_format == DELTA:
        return f"delta.`{files.path(DATA)}`"
    catalog = f"barnabas_{hashlib.sha256(files.folder.encode()).hexdigest()[:12]}"
    setting = f"spark.sql.catalog.{catalog}"
    spark.conf.set(setting, _CLASSES[ICEBERG])
    spark.conf.set(f"{setting}.type", "hadoop")
    spark.conf.set(f"{setting}.warehouse", files.folder)
    return f"{catalog}.{DATA}.rows"


def _exists(spark: SparkSession, name: str, files: Files, description: ArchiveDescription) -> bool:
    if description.table_format == DELTA:
        return files.exists(f"{DATA}/_delta_log")
    return bool(spark.catalog.tableExists(name))


class _told:  # noqa: N801 (it is used like a function)
    """Says in one sentence that the format and this Spark do not go together, where Java only names a class."""

    def __init__(self, description: ArchiveDescription) -> None:
        self._format = description.table_format

    def __enter__(self) -> None:
        """Nothing is to be done."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Translate what a jar for another Spark fails with."""
        text = str(error)
        if any(word in text for word in ("NoSuchMethodError", "NoClassDefFoundError", "IncompatibleClassChangeError")):
            raise PipelineError(
                f"the jars of {self._format} are not for this version of Spark: "
                f"{next((line for line in text.splitlines() if 'Error' in line), '').strip(': ')}"
            ) from error
