"""Both connectors through TLS and SASL, with the same options, to a real Kafka: the same rows, and our sentence."""

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from barnabas.spark.errors import sentence_of
from tests.client.certificates import PASSWORD, Stores
from tests.kafka_peer.peer import KafkaPeer
from tests.kafka_peer.secured import secured, settings_for, stores
from tests.spark.comparing import FORMATS, assert_same, rows_of

__all__ = ["secured", "stores"]

ROWS = 100


def options_for(peer: KafkaPeer, stores: Stores, listener: str, mechanism: str, **more: str) -> dict[str, str]:
    """Options that Java and we both take: its stores have a type and passwords, ours are told apart by themselves."""
    settings = settings_for(listener, mechanism, stores, **more)
    settings |= {
        "ssl.truststore.location": str(stores.authority_p12),
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.password": PASSWORD,
        "ssl.keystore.location": str(stores.p12),
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.password": PASSWORD,
        "bootstrap.servers": peer.address_of(listener),
    }
    return {f"kafka.{name}": value for name, value in settings.items()}


@pytest.mark.kafka
@pytest.mark.parametrize(("listener", "mechanism"), [("SSL", ""), ("SASL_SSL", "SCRAM-SHA-256")])
def test_both_connectors_write_and_read_the_same(
    spark: SparkSession, secured: KafkaPeer, stores: Stores, listener: str, mechanism: str
) -> None:
    options = options_for(secured, stores, listener, mechanism)
    frame = spark.range(ROWS).selectExpr("cast(id as string) as key", "repeat(cast(id as string), 5000) as value")
    for connector in FORMATS:
        writer = frame.write.format(connector).options(**options).option("topic", f"{connector}-{listener}")
        writer.mode("append").save()
    topics = ",".join(f"{connector}-{listener}" for connector in FORMATS)
    ours, theirs = (
        rows_of(spark.read.format(connector).options(**options).option("subscribe", topics).load())
        for connector in FORMATS
    )
    assert_same(ours, theirs)
    written = [{(row.key, row.value) for row in ours if row.topic.startswith(connector)} for connector in FORMATS]
    assert written[0] == written[1]
    assert (len(written[0]), len(ours)) == (ROWS, 2 * ROWS)


@pytest.mark.kafka
def test_a_wrong_password_is_said_in_our_sentence(spark: SparkSession, secured: KafkaPeer, stores: Stores) -> None:
    options = options_for(secured, stores, "SASL_SSL", "SCRAM-SHA-256", password="wrong")
    with pytest.raises(PySparkException) as refused:
        spark.read.format("barnabas").options(**options).option("subscribe", "any").load().collect()
    read = sentence_of(refused.value)
    writer = spark.range(1).selectExpr("'v' as value").write.format("barnabas").options(**options)
    with pytest.raises(PySparkException) as refused:
        writer.option("topic", "any").mode("append").save()
    for said in (read, sentence_of(refused.value)):
        assert said is not None
        assert "user 'alice' was refused" in said
        assert "wrong" not in said
