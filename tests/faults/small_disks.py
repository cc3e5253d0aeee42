"""Small disks for tests: a tmpfs of a few megabytes, which can be filled up, made read-only and taken away."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

MEGABYTE = 1 << 20


class SmallDisk:
    """A file system of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._filler = path / "filler"

    @property
    def free_bytes(self) -> int:
        """How much is free."""
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize

    def fill(self, leave: int = 0) -> None:
        """Let somebody else take the room, but for `leave` bytes."""
        with open(self._filler, "ab") as file:
            file.write(bytes(max(0, self.free_bytes - leave)))

    def empty(self) -> None:
        """Give the room back."""
        self._filler.unlink()

    def remount(self, *options: str) -> None:
        """Mount it again with other options."""
        subprocess.run(["mount", "-o", ",".join(("remount", *options)), str(self.path)], check=True, timeout=60)


@contextmanager
def small_disk(path: Path, megabytes: int) -> Iterator[SmallDisk]:
    """A disk of so many megabytes; skips the test where nobody may mount one, which with CI=true is a failure."""
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(path)]
    mounted = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if mounted.returncode:
        reason = f"a tmpfs can not be mounted here: {mounted.stderr.strip()}"
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI=true, and {reason}")
        pytest.skip(reason)
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True, timeout=60)
