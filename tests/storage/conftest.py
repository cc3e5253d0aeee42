"""Disks for the storage tests: `memory_files` can crash, and `disk` runs a test on the real one as well."""

from pathlib import Path
from typing import NamedTuple

import pytest

from barnabas.storage.files import Files, OsFiles
from tests.storage.memory_files import MemoryFiles


class Disk(NamedTuple):
    """A disk and an empty folder on it."""

    files: Files
    root: str

    def path(self, name: str) -> str:
        """Return the path of a name in the folder."""
        return f"{self.root}/{name}"


@pytest.fixture
def memory_files() -> MemoryFiles:
    """A disk in memory with an empty, durable folder `/data`."""
    files = MemoryFiles()
    files.make_directory("/data")
    files.sync_everything()
    return files


@pytest.fixture(params=["os", "memory"])
def disk(request: pytest.FixtureRequest, tmp_path: Path, memory_files: MemoryFiles) -> Disk:
    """Both disks, one after the other."""
    return Disk(OsFiles(), str(tmp_path)) if request.param == "os" else Disk(memory_files, "/data")
