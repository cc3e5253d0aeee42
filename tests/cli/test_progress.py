"""The progress bar, drawn on a stream that says it is a terminal and on one that is not."""

import io

from barnabas.cli.progress import REDRAW_SECONDS, Progress
from barnabas.clock import ManualClock


class Terminal(io.StringIO):
    """A stream that people look at."""

    def isatty(self) -> bool:
        return True


def test_the_bar_shows_share_speed_and_place() -> None:
    terminal, clock = Terminal(), ManualClock()
    progress = Progress("verify", 200_000_000, terminal, clock)
    clock.advance(1_000)
    progress.advance(100_000_000, "orders-0/1.log")
    assert terminal.getvalue() == "\r\x1b[Kverify [###############...............]  50%  100 MB/s  orders-0/1.log"
    assert progress.seconds == 1.0


def test_the_bar_is_not_drawn_more_often_than_people_can_see() -> None:
    terminal, clock = Terminal(), ManualClock()
    progress = Progress("verify", 1_000, terminal, clock)
    for _ in range(100):
        clock.advance(10)
        progress.advance(10, "x")
    drawn = terminal.getvalue().count("\r")
    assert 5 <= drawn <= 1 / REDRAW_SECONDS
    assert progress.done_bytes == 1_000


def test_finish_takes_the_bar_away() -> None:
    terminal, clock = Terminal(), ManualClock()
    progress = Progress("verify", 10, terminal, clock)
    clock.advance(1_000)
    progress.advance(10, "x")
    progress.finish()
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_nothing_is_written_where_nobody_looks() -> None:
    stream, clock = io.StringIO(), ManualClock()
    progress = Progress("verify", 10, stream, clock)
    clock.advance(1_000)
    progress.advance(10, "x")
    progress.finish()
    assert stream.getvalue() == ""
    assert progress.done_bytes == 10


def test_more_than_was_announced_is_still_all_of_it() -> None:
    """A broker may append while its directory is checked."""
    terminal, clock = Terminal(), ManualClock()
    progress = Progress("verify", 10, terminal, clock)
    clock.advance(1_000)
    progress.advance(1_000, "x")
    assert " 100% " in terminal.getvalue()


def test_no_bytes_at_all_are_all_of_them() -> None:
    terminal, clock = Terminal(), ManualClock()
    progress = Progress("verify", 0, terminal, clock)
    clock.advance(1_000)
    progress.advance(0, "x")
    assert " 100% " in terminal.getvalue()
