"""Directories of ours for Kafka to look at: one that was shut down in order, one that was not and was recovered."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.storage.interop.written import WrittenDirectory, WrittenLog, open_manager
from tests.storage.interop.writing import SMALL_SEGMENTS, write_everything


@dataclass(frozen=True, slots=True, kw_only=True)
class OurDirectory:
    """A log directory of ours that nobody uses any more, and what was written into each log."""

    path: Path
    logs: dict[str, WrittenLog]

    def files(self, suffix: str) -> list[Path]:
        """All files of one kind."""
        return sorted(self.path.glob(f"*/*{suffix}"))

    def files_of(self, log: WrittenLog, suffix: str) -> list[Path]:
        """The files of one kind of one log."""
        return sorted((self.path / f"{log.topic}-0").glob(f"*{suffix}"))


@pytest.fixture(scope="session")
def clean_directory(tmp_path_factory: pytest.TempPathFactory) -> OurDirectory:
    """A directory that was shut down."""
    written = WrittenDirectory(tmp_path_factory.mktemp("ours") / "clean")
    write_everything(written)
    written.close()
    return OurDirectory(path=written.path, logs=written.logs)


@pytest.fixture(scope="session")
def recovered_directory(tmp_path_factory: pytest.TempPathFactory) -> OurDirectory:
    """A directory whose broker was killed, which was then opened again and shut down.

    What a killed process leaves is what its files hold at that moment, so they are copied away under a running one.
    """
    folder = tmp_path_factory.mktemp("ours")
    written = WrittenDirectory(folder / "running")
    write_everything(written)
    killed = folder / "killed"
    shutil.copytree(written.path, killed)
    written.close()
    for log in written.logs.values():
        # The process died in the middle of an append: a batch that announces more bytes than there are.
        with open(max((killed / f"{log.topic}-0").glob("*.log")), "ab") as file:
            file.write(log.end_offset.to_bytes(8, "big") + b"\0\0\1\0" + b"torn")
    manager = open_manager(killed, {topic: SMALL_SEGMENTS for topic in written.logs})
    for managed in manager.current_logs.values():
        managed.log.update_high_watermark(managed.log.log_end_offset)
    manager.shutdown()
    return OurDirectory(path=killed, logs=written.logs)


@pytest.fixture(scope="session", params=["clean", "recovered"])
def our_directory(
    request: pytest.FixtureRequest, clean_directory: OurDirectory, recovered_directory: OurDirectory
) -> OurDirectory:
    """Both, one after the other."""
    return clean_directory if request.param == "clean" else recovered_directory
