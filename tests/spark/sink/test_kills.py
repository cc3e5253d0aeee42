"""Exactly once under kills: the driver at every step of a commit, a worker, the broker; then from the checkpoint on.

A reader that wants what is committed finds every row once in the end. The order of the kills is drawn from a seed.
"""

import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from barnabas import Broker
from barnabas.client.client import Client
from barnabas.client.offsets import LATEST, offsets_at
from barnabas.client.transactions import list_transactions
from barnabas.model import TopicPartition
from barnabas.spark.sink.decisions import DECIDED, Decisions
from tests.kafka_peer.populate import wait_until
from tests.spark.sink.test_stream_writer import add_file
from tests.spark.sink.topics import make_topic, read_topic, values

SEED = 20
POINTS = ("tasks-done", "decided", "half-committed")
RUN_SECONDS_MAX = 300


def drive(output: Path, *arguments: object, expected: int) -> None:
    """Run a driver until it is dead, or done. What it says goes to a file: its workers keep a pipe open for a while."""
    with (
        output.open("wb") as file,
        subprocess.Popen(
            [sys.executable, "-m", "tests.spark.sink.killed_driver", *map(str, arguments)],
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process,
    ):
        try:
            process.wait(RUN_SECONDS_MAX)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == expected, output.read_text()[-3000:]


def kill_and_start(broker: Broker) -> None:
    """What a crash of the broker is to those who use it."""
    broker.kill()
    broker.start()


def written(servers: str, topic: str) -> int:
    """How many records there are in all partitions, committed or not."""
    with Client(servers) as client:
        partitions = [TopicPartition(topic, each.partition) for each in client.topic(topic).partitions]
        return sum(offsets_at(client, partitions, LATEST).values())


def restart_once_it_writes(broker: Broker, topic: str, before: int) -> None:
    """Kill the broker in the middle of what the driver writes."""
    wait_until(lambda: written(broker.bootstrap_servers, topic) > before, "the driver to write", RUN_SECONDS_MAX)
    kill_and_start(broker)


@pytest.mark.xdist_group("killed drivers")
@pytest.mark.usefixtures("connector_jars")  # Only for its rule of skipping where there is no Java.
def test_every_row_is_there_once_whoever_is_killed(tmp_path: Path) -> None:
    generator = random.Random(SEED)
    points = generator.sample(POINTS, len(POINTS))
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    expected: dict[bytes | None, int] = {}
    with Broker(data=tmp_path / "data") as broker:
        servers = broker.bootstrap_servers
        topic = make_topic(servers)
        batch = 0
        for point in points:
            for _ in range(2):
                expected |= add_file(source, len(expected), rows=generator.randrange(2, 200))
            # Either the first batch of this run or the second; the first is a replay in all runs but one.
            drive(tmp_path / "output", servers, topic, source, checkpoint, point, batch, expected=-signal.SIGKILL)
            decided = Decisions(str(checkpoint)).batch_ids().get(batch)
            assert decided == (None if point == "tasks-done" else DECIDED)
            if point == "decided":
                kill_and_start(broker)
            batch += 2
            with Client(servers) as client:
                is_open = bool(list_transactions(client, states=["Ongoing"]))
            assert is_open, point
        expected |= add_file(source, len(expected))
        before = written(servers, topic)
        restarts = threading.Thread(target=restart_once_it_writes, args=(broker, topic, before))
        restarts.start()
        try:
            drive(tmp_path / "output", servers, topic, source, checkpoint, "task", batch, expected=0)
        finally:
            restarts.join()
        assert values(read_topic(servers, topic)) == expected
        with Client(servers) as client:
            assert list_transactions(client, states=["Ongoing"]) == []
