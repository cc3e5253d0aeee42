"""`barnabas pipeline ...` in a process that dies where it is told to.

python -m tests.spark.jobs.killed_job POINT COMMIT pipeline archive TOPIC FOLDER ...

written      the files of commit COMMIT are written, nothing names them yet
committed    the commit is there, and Spark does not know that its batch is done
never        it ends by itself
"""

import os
import signal
import sys
from collections.abc import Callable
from unittest import mock

from barnabas.cli.main import main
from barnabas.spark.archives.archive import Archive
from barnabas.spark.archives.manifest import Commit


def dying(point: str, number: int, original: Callable[[Archive, Commit], None]) -> Callable[[Archive, Commit], None]:
    """A commit that kills the driver before or after it: Python, the JVM and what they started."""

    def add(archive: Archive, commit: Commit) -> None:
        if (point, number) == ("written", commit.number):
            os.killpg(os.getpgrp(), signal.SIGKILL)
        original(archive, commit)
        if (point, number) == ("committed", commit.number):
            os.killpg(os.getpgrp(), signal.SIGKILL)

    return add


if __name__ == "__main__":
    with mock.patch.object(Archive, "add", dying(sys.argv[1], int(sys.argv[2]), Archive.add)):
        sys.exit(main(sys.argv[3:]))
