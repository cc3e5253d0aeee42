"""Values decoded into a column `data`: JSON by a schema in Spark's words, Avro by an Avro schema.

Rule 1: a record without a value (a deletion) is decoded into null, and is no failure.
Rule 2: a value either decodes as a whole or not at all. Spark's functions make nulls of what they can not read; here
that is told apart from nulls that are in the value.
"""

import json
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import StringType, StructField, StructType

from barnabas.spark.errors import OptionError

NONE, JSON, AVRO = "none", "json", "avro"
DECODERS = (NONE, JSON, AVRO)
DATA = "data"
UNDECODABLE = "undecodable"
"""A column of ours: whether a record can not be decoded."""

_CORRUPT = "_barnabas_corrupt"
_AVRO_PACKAGE = "org.apache.spark:spark-avro_2.13:VERSION"


def check_decoding(spark: SparkSession, decode: str, schema: str) -> str:
    """Return the schema as it is kept; raises OptionError when values can not be decoded by it."""
    if decode not in DECODERS:
        raise OptionError("decode", f"is {decode!r}, but has to be one of: {', '.join(DECODERS)}")
    if decode == NONE:
        if schema:
            raise OptionError("schema", f"is given, but nothing is decoded: 'decode' is {NONE}")
        return ""
    if not schema.strip():
        raise OptionError("schema", f"is needed to decode {decode}")
    if decode == AVRO:
        _check_avro(spark)
        return json.dumps(_avro_schema(schema))
    return _json_schema(spark, schema)


def with_data(frame: DataFrame, decode: str, schema: str) -> DataFrame:
    """Return records with what they decode to, and whether they do not."""
    if decode == NONE:
        return frame.withColumn(UNDECODABLE, functions.lit(False))
    if decode == AVRO:
        return _with_avro(frame, schema)
    wanted = StructType([*_struct(schema), StructField(_CORRUPT, StringType())])
    text = functions.col("value").cast("string")
    decoded = frame.withColumn(DATA, functions.from_json(text, wanted, {"columnNameOfCorruptRecord": _CORRUPT}))
    is_bad = (
        functions.col(DATA).isNull() | functions.col(f"{DATA}.{_CORRUPT}").isNotNull() | ~functions.is_valid_utf8(text)
    )
    return decoded.withColumn(UNDECODABLE, functions.col("value").isNotNull() & is_bad).withColumn(
        DATA, functions.when(~functions.col(UNDECODABLE), functions.col(DATA).dropFields(_CORRUPT))
    )


def _json_schema(spark: SparkSession, schema: str) -> str:
    """Return a schema, given as DDL or as Spark's JSON, as DDL."""
    try:
        is_json = schema.lstrip().startswith("{")
        read = StructType.fromJson(json.loads(schema)) if is_json else _struct(schema)
        if not read.fields:
            raise ValueError("it has no columns")
        return str(spark.createDataFrame([], read)._jdf.schema().toDDL())
    except (PySparkException, ValueError, KeyError, TypeError, AttributeError) as error:
        first = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise OptionError(
            "schema", f"is neither like 'id BIGINT, name STRING' nor the JSON of a schema of Spark: {first}"
        ) from None


def _struct(schema: str) -> StructType:
    read = StructType.fromDDL(schema)
    if not isinstance(read, StructType):
        raise ValueError("it is one type, and not columns")
    return read


def _check_avro(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    loader = jvm.Thread.currentThread().getContextClassLoader()
    try:
        loader.loadClass("org.apache.spark.sql.avro.AvroDataToCatalyst")
    except Exception as error:  # Java's ClassNotFoundException.
        raise OptionError(
            "decode",
            f"is {AVRO}, which needs Spark's Avro package: start Spark with "
            f"--conf spark.jars.packages={_AVRO_PACKAGE}, in a version for Spark {spark.version}",
        ) from error


def _avro_schema(schema: str) -> Any:
    try:
        return json.loads(schema)
    except ValueError as error:
        raise OptionError("schema", f"is not an Avro schema, which is JSON: {error}") from None


def avro_nulls(schema: Any) -> tuple[list[str], bytes | None]:
    """Return the fields of a record that can not be null; and where all can, how a record of nulls is encoded.

    Spark decodes what it can not read to a record of nulls. That is told from a record that really is one by its bytes:
    a null in a union is the number of its branch, as a zigzag varint.
    """
    if not isinstance(schema, dict) or schema.get("type") != "record":
        return [], None
    never_null, encoded = [], bytearray()
    for field in schema.get("fields", ()):
        kind = field.get("type")
        if kind == "null" or not isinstance(kind, list) or "null" not in kind:
            if kind != "null":
                never_null.append(field["name"])
            continue
        encoded.append(kind.index("null") * 2)
    return never_null, None if never_null else bytes(encoded)


def _with_avro(frame: DataFrame, schema: str) -> DataFrame:
    decoded = frame.withColumn(DATA, from_avro(functions.col("value"), schema, {"mode": "PERMISSIVE"}))
    parsed = json.loads(schema)
    never_null, nulls = avro_nulls(parsed)
    is_bad = functions.col(DATA).isNull()
    if never_null:
        is_bad = is_bad | functions.col(f"{DATA}.`{never_null[0]}`").isNull()
    elif nulls is not None:
        names = [field["name"] for field in parsed["fields"]]
        all_null = functions.lit(True)
        for name in names:
            all_null = all_null & functions.col(f"{DATA}.`{name}`").isNull()
        is_bad = is_bad | (all_null & (functions.col("value") != functions.lit(nulls)))
    return decoded.withColumn(UNDECODABLE, functions.col("value").isNotNull() & is_bad).withColumn(
        DATA, functions.when(~functions.col(UNDECODABLE), functions.col(DATA))
    )
