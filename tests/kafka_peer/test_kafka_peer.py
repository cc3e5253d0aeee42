"""The harness itself: a real Kafka starts, takes records, and its own tool reads what it wrote."""

import socket
import struct
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.kafka_peer.jars import PeerUnavailableError, fetch_kafka, require_java
from tests.kafka_peer.peer import KafkaPeer, KafkaPeerError, complaints_of, dump_log

pytestmark = pytest.mark.kafka


def create_and_fill(peer: KafkaPeer, topic: str, values: list[bytes]) -> None:
    admin = AdminClient({"bootstrap.servers": peer.bootstrap_servers})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    producer = Producer({"bootstrap.servers": peer.bootstrap_servers, "linger.ms": 0})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0


def test_kafka_starts_takes_records_and_dumps_its_segment(kafka_peer: KafkaPeer) -> None:
    create_and_fill(kafka_peer, "orders", [b"first", b"second"])
    kafka_peer.stop()
    assert (kafka_peer.data_dir / ".kafka_cleanshutdown").exists()
    [segment] = kafka_peer.segments("orders", 0)
    output = dump_log("--deep-iteration", "--print-data-log", "--files", segment)
    assert "payload: first" in output
    assert "payload: second" in output
    assert complaints_of(output) == []


def test_kafka_starts_again_on_its_data_after_stop_and_after_kill(kafka_peer: KafkaPeer) -> None:
    create_and_fill(kafka_peer, "orders", [b"first"])
    kafka_peer.kill()
    assert not kafka_peer.is_running
    assert not (kafka_peer.data_dir / ".kafka_cleanshutdown").exists()
    kafka_peer.start()
    topics = AdminClient({"bootstrap.servers": kafka_peer.bootstrap_servers}).list_topics(timeout=30).topics
    assert "orders" in topics


def test_a_taken_port_is_replaced_by_a_free_one(kafka_peer: KafkaPeer) -> None:
    kafka_peer.stop()
    before = kafka_peer.bootstrap_servers
    host, port = before.split(":")
    with socket.create_server((host, int(port))):
        kafka_peer.start()
        assert kafka_peer.bootstrap_servers != before


def test_a_bad_setting_is_reported_with_what_kafka_said(kafka_jars: Path, tmp_path: Path) -> None:
    with pytest.raises(KafkaPeerError, match=r"log\.segment\.bytes"):
        KafkaPeer(tmp_path, {"log.segment.bytes": "many"})


def test_the_dump_tool_complains_about_bad_files(kafka_peer: KafkaPeer, tmp_path: Path) -> None:
    """Otherwise 'no complaints' would prove nothing."""
    create_and_fill(kafka_peer, "orders", [b"first"])
    kafka_peer.stop()
    [segment] = kafka_peer.segments("orders", 0)
    good = segment.read_bytes()
    log, index, time_index = (tmp_path / (segment.stem + suffix) for suffix in (".log", ".index", ".timeindex"))
    assert complaints_of(dump_log("--files", segment)) == []

    log.write_bytes(good + good[:20])
    assert "Found 20 invalid bytes" in complaints_of(dump_log("--files", log))[0]
    log.write_bytes(good[:-1] + b"\xff")
    assert "isvalid: false" in complaints_of(dump_log("--files", log))[0]

    log.write_bytes(good)
    index.write_bytes(struct.pack(">ii", 5, 0))
    assert complaints_of(dump_log("--files", index)) == [f"Mismatches in :{index}  Index offset: 5, log offset: 0"]
    time_index.write_bytes(struct.pack(">qi", 7, 0))
    [complaint] = complaints_of(dump_log("--files", time_index))
    assert complaint.startswith(f"Found timestamp mismatch in :{time_index}  Index timestamp: 7, log timestamp: ")

    # The batch again at offset 5, so that 1 to 4 are missing.
    log.write_bytes(good + struct.pack(">q", 5) + good[8:])
    gap = complaints_of(dump_log("--deep-iteration", "--files", log))
    assert gap == [f"Non-consecutive offsets in {log}  0 is followed by 5"]


def test_without_java_the_reason_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PeerUnavailableError, match="no Java runtime"):
        require_java()


def test_without_maven_and_jars_the_reason_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"21.0.1\"' >&2\n", encoding="utf-8")
    java.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("BARNABAS_PEERS", str(tmp_path / "peers"))
    with pytest.raises(PeerUnavailableError, match="no Maven"):
        fetch_kafka()
