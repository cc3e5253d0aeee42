"""The bar of a job: drawn in a terminal, silent elsewhere, and gone at the end."""

import io

from barnabas.cli.job_progress import JobProgress
from barnabas.clock import ManualClock
from barnabas.spark.jobs.job import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_bar() -> None:
    terminal = Terminal()
    progress = JobProgress("archive", terminal, ManualClock())
    progress.report(Progress(step="reading", done=5, total=10, unit="tasks"))
    assert "archive [###############...............]  50%  reading: 5 of 10 tasks, 0 s" in terminal.getvalue()
    progress.report(Progress(step="reading", done=5, total=0, unit="records"))
    assert terminal.getvalue().endswith("reading: 5 records, 0 s")
    progress.finish()
    length = len(terminal.getvalue())
    progress.report(Progress(step="late", done=1, total=1))
    assert len(terminal.getvalue()) == length


def test_a_file_gets_nothing() -> None:
    file = io.StringIO()
    progress = JobProgress("archive", file)
    progress.report(Progress(step="reading", done=1, total=2))
    progress.finish()
    assert file.getvalue() == ""
