"""One writer an archive, and one job a checkpoint: a lock that ends with the process that has it, whatever ends that.

It is the machine's own lock on a file, so that it is there only for archives on this machine's disks. Elsewhere two
writers find out at their first commit: its file is made by one of them, and the other one is told (`Archive.add`).
Nothing is ever wrong in an archive because of two writers; the lock says it earlier, and makes it safe to clean up.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator

from barnabas.spark.archives.files import Files
from barnabas.spark.archives.manifest import FOLDER
from barnabas.spark.errors import PipelineError

LOCK = f"{FOLDER}/.lock"


@contextlib.contextmanager
def writer_lock(files: Files) -> Iterator[bool]:
    """Be the only writer, and yield whether that is sure; raises PipelineError when another process is."""
    path = files.local_path(LOCK)
    if path is None:
        yield False
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PipelineError(f"another job is at work on {files.folder}: wait for it, or stop it") from None
        yield True
