"""`barnabas verify` and Kafka's directories: a stopped one is sound, of a killed one it names what recovery mends."""

import json
import shutil
from pathlib import Path

import pytest

from barnabas.cli.main import main
from tests.kafka_peer.fixtures import KafkaDirectory
from tests.kafka_peer.peer import copy_sparse
from tests.storage.interop.conftest import OurDirectory, RevivedKafka
from tests.storage.interop.written import open_manager

pytestmark = pytest.mark.kafka


def test_a_stopped_kafkas_directory_is_sound(stopped_kafka: KafkaDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(stopped_kafka.data_dir)]) == 0
    assert capsys.readouterr().out.endswith("no faults\n")


def test_what_kafka_recovered_is_sound(revived_kafka: RevivedKafka) -> None:
    assert main(["verify", str(revived_kafka.data_dir)]) == 0


def test_of_a_killed_kafkas_directory_no_record_is_at_fault(
    killed_kafka: KafkaDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    """Kafka had written everything to its files; only indexes, which are made again, may disagree."""
    main(["verify", "--json", str(killed_kafka.data_dir)])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    faulty = {Path(row["fault"]["path"]).suffix for row in rows if "fault" in row}
    assert faulty <= {".index", ".timeindex", ".txnindex"}


def test_after_our_recovery_a_killed_kafkas_directory_is_sound(killed_kafka: KafkaDirectory, tmp_path: Path) -> None:
    copy_sparse(killed_kafka.data_dir, tmp_path / "data")
    # The process may also die in the middle of an append.
    torn = max((tmp_path / "data" / "codec-zstd-0").glob("*.log"))
    with open(torn, "ab") as file:
        file.write(torn.read_bytes()[:40])
    assert main(["verify", str(tmp_path / "data")]) == 1
    open_manager(tmp_path / "data").shutdown()
    assert main(["verify", str(tmp_path / "data")]) == 0


def test_directories_of_ours_are_sound(our_directory: OurDirectory) -> None:
    assert main(["verify", str(our_directory.path)]) == 0


def test_a_directory_of_ours_that_was_not_shut_down_is_sound_but_for_what_was_torn(
    clean_directory: OurDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(clean_directory.path, copy)
    (copy / ".kafka_cleanshutdown").unlink()
    torn = max((copy / "ours-none-0").glob("*.log"))
    size = torn.stat().st_size
    with open(torn, "ab") as file:
        file.write(b"torn")
    assert main(["verify", str(copy)]) == 1
    [fault, _] = capsys.readouterr().out.splitlines()
    assert fault.startswith(f"{torn}, position {size}: ")
