"""What a section reports of the machine."""

from pathlib import Path

import pytest

from bench.measurement import StolenTime


def stat(path: Path, *ticks: int) -> None:
    path.write_text("cpu  " + " ".join(map(str, ticks)) + "\ncpu0 1 2 3\n", encoding="utf-8")


def test_what_others_took_is_a_part_of_what_was_wanted(tmp_path: Path) -> None:
    path = tmp_path / "stat"
    stat(path, 100, 10, 50, 1000, 5, 0, 3, 7, 0, 0)
    stolen = StolenTime(str(path))
    stat(path, 130, 10, 60, 5000, 9, 1, 4, 15, 0, 0)
    found = stolen.measurement()
    assert found is not None
    assert (found.value, found.unit, found.holds) == (16.0, "%", None)


@pytest.mark.parametrize("content", [None, "cpu  1 2 3 4\n"])
def test_where_nobody_tells_there_is_no_figure(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "stat"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    assert StolenTime(str(path)).measurement() is None
