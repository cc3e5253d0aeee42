"""One clean under way beside the loop: the child process that does it, and the thread that waits for its answers.

Rule 1: every answer comes to the loop, in order; after the last, or when the process is gone, comes `None`.
Rule 2: a process that is ended is waited for, so that its files are its no more.
Rule 3: the thread that starts a process lives as long as it: the kernel takes the thread for the parent whose death
ends the child.
"""

import asyncio
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from os import getpid
from typing import IO

from barnabas.storage.cleaner.job import (
    CleanedGroup,
    CleaningError,
    CleaningJob,
    CleaningResult,
    decode_answer,
    encode_job,
)
from barnabas.storage.cleaner.worker import work
from barnabas.storage.files import Files, OsFiles

Answer = CleanedGroup | CleaningResult | CleaningError
AnswerListener = Callable[[Answer | None], None]

WORKER = "barnabas.storage.cleaner.worker"


class CleaningProcess:
    """Runs a job. A disk that is not the machine's own (a test's) can not be seen by a process: a thread cleans it."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, files: Files, job: CleaningJob, listener: AnswerListener
    ) -> None:
        self._loop = loop
        self._listener = listener
        self._process: subprocess.Popen[str] | None = None
        # Held while the process is started or ended, so that one that was just started is not missed.
        self._lock = threading.Lock()
        self._is_ended = False
        run = (lambda: self._run_process(job)) if isinstance(files, OsFiles) else lambda: self._run_here(files, job)
        self._thread = threading.Thread(target=run, name="barnabas-cleaner", daemon=True)
        self._thread.start()

    @property
    def process_id(self) -> int | None:
        """The process, while there is one."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def _tell(self, answer: Answer | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._heard, answer)
        except RuntimeError:
            pass  # The loop was closed under a broker that was killed; there is nobody to tell.

    def _heard(self, answer: Answer | None) -> None:
        if not self._is_ended:
            self._listener(answer)

    def _run_here(self, files: Files, job: CleaningJob) -> None:
        work(files, job, lambda line: self._tell(decode_answer(line)))
        self._tell(None)

    def _run_process(self, job: CleaningJob) -> None:
        try:
            with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as complaints:
                self._run_and_talk(job, complaints)
        except Exception as error:  # noqa: BLE001 (whatever it is, nothing would ever be cleaned again if nobody heard of it)
            self._tell(CleaningError(f"the cleaning process failed: {error}"))
        self._tell(None)

    def _run_and_talk(self, job: CleaningJob, complaints: IO[str]) -> None:
        with self._lock:
            if self._is_ended:
                return
            # -P: a module in the folder that the broker was started in is nobody's business here.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", WORKER, str(getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                text=True,
            )
        self._talk(self._process, job, complaints)

    def _talk(self, process: "subprocess.Popen[str]", job: CleaningJob, complaints: IO[str]) -> None:
        with process:
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                process.stdin.write(encode_job(job) + "\n")
                process.stdin.close()
            except BrokenPipeError:
                pass  # It is gone; its end says so below.
            for line in process.stdout:
                self._tell(decode_answer(line))
        if process.returncode:
            complaints.seek(0)
            said = "".join(f": {line.strip()}" for line in complaints.readlines()[-1:])
            self._tell(CleaningError(f"the cleaning process ended with status {process.returncode}{said}"))

    def end(self) -> None:
        """End it, and return when it is gone; no answer comes any more."""
        with self._lock:
            self._is_ended = True
            if self._process is not None:
                self._process.kill()
        self._thread.join()
