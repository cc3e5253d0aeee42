"""Jobs as processes that are killed at random times: what they move is there once in the end.

Files are ingested into a topic, the topic is archived, and the archive is replayed into another topic. Each job is
disturbed while it writes: all of it is killed, or only its Python driver, or one of its workers, or the broker. Then it
is run to its end. Who is killed and when is drawn from a seed; `BARNABAS_KILLS` says how often each job is disturbed.
"""

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from barnabas import Broker
from tests.broker.turning import command_of
from tests.kafka_peer.peer import KEEP_FOR_EVER
from tests.kafka_peer.populate import wait_until
from tests.spark.sink.test_kills import kill_and_start, written
from tests.spark.sink.topics import make_topic, read_topic, values

SEED = int(os.environ.get("BARNABAS_SEED", "1"))
KILLS = int(os.environ.get("BARNABAS_KILLS", "1"))
RUN_SECONDS_MAX = 300
LATER_SECONDS_MAX = 2.0
"""A job is disturbed at most so long after it began to write, which is about how long it writes."""
FILES, ROWS = 8, 200


class Job:
    """A job of `barnabas pipeline`, in a process group of its own."""

    def __init__(self, output: Path, words: list[str]) -> None:
        self._output = output
        with output.open("wb") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "barnabas.cli.main", "pipeline", *words],
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def end(self) -> int:
        """Wait until nothing of it is left, and return its exit code."""
        try:
            code = self._process.wait(RUN_SECONDS_MAX)
            # The JVM notices that its driver is gone, and may still be writing until then.
            wait_until(lambda: not self._members(), "the job to be gone", RUN_SECONDS_MAX)
        finally:
            self.kill()
        return code

    def kill(self) -> None:
        """Kill the driver, the JVM and all workers."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def kill_driver(self) -> None:
        """Kill the Python driver alone, as a test's or a notebook's that crashes."""
        self._process.kill()

    def kill_worker(self) -> None:
        """Kill a process that runs Python code of a task, if there is one at the moment."""
        for process in self._members():
            if b"pyspark.daemon" in command_of(process):
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
                return

    def said(self) -> str:
        return self._output.read_text(errors="replace")[-3000:]

    def _members(self) -> list[int]:
        found = subprocess.run(["ps", "-e", "-o", "pid=,pgid=,stat="], capture_output=True, text=True, check=True)
        rows = [line.split() for line in found.stdout.splitlines()]
        return [int(pid) for pid, group, state in rows if int(group) == self._process.pid and not state.startswith("Z")]


def run_disturbed(
    chance: random.Random, broker: Broker, output: Path, words: list[str], progress: Callable[[], int]
) -> None:
    """Run a job to its end, after it was disturbed while it made progress."""
    words = [*words, "--bootstrap-server", broker.bootstrap_servers, "--json"]
    for _ in range(KILLS):
        job = Job(output, words)
        before = progress()
        wait_until(lambda: progress() > before or not job.is_running, "the job to write", RUN_SECONDS_MAX)  # noqa: B023
        victim = chance.choice(["all", "driver", "worker", "broker"])
        with suppress(subprocess.TimeoutExpired):
            job._process.wait(chance.uniform(0, LATER_SECONDS_MAX))
        print(f"{words[0]}: {victim}, at {progress()}, {'running' if job.is_running else 'over'}")
        if victim == "all":
            job.kill()
        elif victim == "driver":
            job.kill_driver()
        elif victim == "worker":
            job.kill_worker()
        else:
            kill_and_start(broker)
        # Whether it gets over that or fails is its own affair; that it ends is not.
        job.end()
    last = Job(output, words)
    code = last.end()
    assert code == 0, last.said()


def files_below(folder: Path) -> int:
    return sum(1 for file in folder.rglob("*") if file.is_file())


@pytest.mark.xdist_group("killed jobs")
@pytest.mark.usefixtures("connector_jars")  # Only for its rule of skipping where there is no Java.
def test_what_jobs_move_is_there_once_whoever_is_killed(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    incoming, lake = tmp_path / "incoming", tmp_path / "lake"
    incoming.mkdir()
    expected: Counter[bytes | None] = Counter()
    for number in range(FILES):
        rows = [json.dumps({"id": number * ROWS + row}, separators=(",", ":")) for row in range(ROWS)]
        (incoming / f"{number}.json").write_text("\n".join(rows))
        expected.update(row.encode() for row in rows)
    with Broker(data=tmp_path / "data", settings=KEEP_FOR_EVER) as broker:
        servers = broker.bootstrap_servers
        topic, restored = make_topic(servers), make_topic(servers)

        def run(words: list[str], progress: Callable[[], int]) -> None:
            run_disturbed(chance, broker, tmp_path / "output", words, progress)

        run(["ingest", str(incoming), topic, "--files-per-batch", "1", "--key", "id"], lambda: written(servers, topic))
        assert values(read_topic(servers, topic)) == expected
        run(["archive", topic, str(lake), "--records-per-commit", "300"], lambda: files_below(lake))
        run(["replay", str(lake), restored, "--records-per-step", "300"], lambda: written(servers, restored))
        assert sorted(read_topic(servers, restored)) == sorted(read_topic(servers, topic))
