"""A log directory to look at: `orders-0` of plain records in several segments, `payments-0` with aborted transactions.

orders-0     12 batches of 5 records in segments of 3 batches, under two leader epochs; it starts at offset 3
payments-0   transactions of the producers 7 and 8; offsets 0 to 3 and 4 to 7 are aborted, from 8 on one is open
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas.cli.main import main
from barnabas.config import LogConfig
from barnabas.model import TopicPartition
from barnabas.storage.checkpoint import write_offsets
from barnabas.storage.files import OsFiles
from tests.client.brokers import BROKERS, running_broker
from tests.storage.interop.written import NOW_MS, Producer, WrittenDirectory

BATCHES = 12
SEGMENT = "00000000000000000000"
LAST_SEGMENT = "00000000000000000045"


@pytest.fixture(scope="session")
def sound_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory, shut down cleanly; tests copy it."""
    directory = WrittenDirectory(tmp_path_factory.mktemp("cli") / "data")
    orders = directory.create("orders", LogConfig(segment_bytes=600, index_interval_bytes=100))
    for number in range(BATCHES):
        orders.leader_epoch = number // 6
        start = NOW_MS + number * 1_000
        orders.append([(start + i, b"key %d" % i, b"value %d" % number, ((b"h", b"\xff"),)) for i in range(5)])
    orders.log.update_high_watermark(orders.end_offset)
    orders.log.delete_records(3)
    payments = directory.create("payments", LogConfig())
    first, second = Producer(7), Producer(8)
    for producer, commit in ((first, False), (second, False), (first, True)):
        payments.append([(NOW_MS, b"k", None, ())] * 3, producer=producer, transactional=True)
        if not commit:
            payments.end(producer, commit=False)
    directory.close()
    cleaned = {TopicPartition("orders", 0): 15}
    write_offsets(OsFiles(), str(directory.path / "cleaner-offset-checkpoint"), cleaned)
    return directory.path


@pytest.fixture
def data_dir(sound_directory: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    target = tmp_path / "data"
    shutil.copytree(sound_directory, target)
    return target


@pytest.fixture
def orders(data_dir: Path) -> Path:
    """The folder of the plain records."""
    return data_dir / "orders-0"


@pytest.fixture
def payments(data_dir: Path) -> Path:
    """The folder of the transactions."""
    return data_dir / "payments-0"


@pytest.fixture(scope="session", params=BROKERS)
def bootstrap_servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a running broker, the same for all tests here."""
    with running_broker(request.param, tmp_path_factory.mktemp("cli") / request.param, request) as address:
        yield address


Run = Callable[..., tuple[int, str, str]]
"""Takes the words behind a command, and gives exit code, stdout and stderr."""


@pytest.fixture
def run(request: pytest.FixtureRequest, bootstrap_servers: str, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command that the test's module names as COMMAND, against the broker."""
    command: str = request.module.COMMAND

    def run_words(*words: str) -> tuple[int, str, str]:
        exit_code = main([command, words[0], "--bootstrap-server", bootstrap_servers, *words[1:]])
        said = capsys.readouterr()
        return exit_code, said.out, said.err

    return run_words
