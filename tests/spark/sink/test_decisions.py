"""Decisions on the disk: whole or not there, of this query and plan or refused, finished, withdrawn, pruned."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from pyarrow import fs

from barnabas.client.sender import TransactionHandle
from barnabas.spark.errors import OptionError, PipelineError
from barnabas.spark.sink.decisions import DECIDED, FINISHED, FOLDER, KEPT, Decision, Decisions

HANDLES = (
    TransactionHandle(transactional_id="a-0-0", producer_id=5, producer_epoch=1),
    TransactionHandle(transactional_id="a-1-0", producer_id=6, producer_epoch=0),
)


def spark_files(folder: Path, *batch_ids: int, query_id: str = "query", plan: str = "v1") -> None:
    """Write what Spark has in a checkpoint when these batches are planned."""
    (folder / "offsets").mkdir(parents=True, exist_ok=True)
    (folder / "metadata").write_text(f'{{"id":"{query_id}"}}')
    for number in batch_ids:
        (folder / "offsets" / str(number)).write_text(plan)


def handles_of(decision: Decision | None) -> tuple[TransactionHandle, ...] | None:
    return None if decision is None else decision.transactions


@pytest.mark.parametrize("name", ["a checkpoint", "of%20this#name?", "ü"])
def test_a_decision_is_read_again_from_any_spelling_of_its_place(tmp_path: Path, name: str) -> None:
    place = tmp_path / name
    spark_files(place, 7)
    assert Decisions(str(place)).read(7) is None
    decided = Decisions(str(place)).decide(7, HANDLES)
    assert (decided.query_id, decided.transactions, decided.is_finished) == ("query", HANDLES, False)
    for spelling in (str(place), f"file:{place}", f"file://{place}/"):
        assert Decisions(spelling).read(7) == decided
    assert Decisions(str(place)).read(8) is None
    assert [path.name for path in (place / FOLDER).iterdir()] == ["7.decided"]


def test_a_decision_of_another_query_or_plan_is_refused(tmp_path: Path) -> None:
    spark_files(tmp_path, 6, 7)
    decisions = Decisions(str(tmp_path))
    decided = decisions.decide(7, HANDLES)
    decisions.finish(7)
    spark_files(tmp_path, 7, plan="v2")
    with pytest.raises(
        PipelineError, match=r"/7\.finished is about batch 7 as it was planned before.* delete that file"
    ):
        decisions.read(7)
    spark_files(tmp_path, 7, query_id="new")
    with pytest.raises(
        PipelineError,
        match=rf"/7\.finished is about batch 7 of another query \(query\).*delete the folder .*/{FOLDER} and",
    ):
        decisions.read(7)
    assert decisions.read_any(7) == replace(decided, is_finished=True)
    (tmp_path / "offsets" / "7").unlink()
    spark_files(tmp_path)
    with pytest.raises(PipelineError, match=r"/offsets/7 is not there, where Spark says what batch 7 is"):
        decisions.read(7)


def test_the_newest_plan_is_the_current_batch(tmp_path: Path) -> None:
    assert Decisions(str(tmp_path)).current_batch() is None
    spark_files(tmp_path, 9, 10)
    (tmp_path / "offsets" / ".11.crc").touch()
    assert Decisions(str(tmp_path)).current_batch() == 10


def test_without_spark_the_plan_is_told(tmp_path: Path) -> None:
    spark_files(tmp_path)
    Decisions(str(tmp_path), lambda number: f"step {number}").decide(0, HANDLES)
    assert handles_of(Decisions(str(tmp_path), lambda number: f"step {number}").read(0)) == HANDLES
    with pytest.raises(PipelineError, match="planned anew"):
        Decisions(str(tmp_path), lambda number: f"other step {number}").read(0)


@pytest.mark.parametrize("kind", ["local", "without-links", "remote"])
def test_only_one_driver_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    def no_links(*_: object) -> None:
        raise PermissionError

    spark_files(tmp_path, 3)
    decisions = Decisions(str(tmp_path))
    if kind == "without-links":
        monkeypatch.setattr(os, "link", no_links)
    elif kind == "remote":
        monkeypatch.setattr(decisions, "_files", fs.SubTreeFileSystem("/", fs.LocalFileSystem()))
    decisions.decide(3, HANDLES[:1])
    for _ in range(2):
        with pytest.raises(PipelineError, match=r"^another driver has decided about batch 3 just now"):
            decisions.decide(3, HANDLES[1:])
        assert handles_of(decisions.read(3)) == HANDLES[:1]
        # Once more when the other driver is done with it.
        if decisions.batch_ids() == {3: DECIDED}:
            decisions.finish(3)
    assert [path.name for path in (tmp_path / FOLDER).iterdir()] == ["3.finished"]


def test_a_decision_is_finished_or_withdrawn(tmp_path: Path) -> None:
    spark_files(tmp_path, 1, 2)
    decisions = Decisions(str(tmp_path))
    decided = decisions.decide(1, HANDLES)
    decisions.decide(2, HANDLES)
    decisions.finish(1)
    decisions.withdraw(2)
    assert decisions.read(1) == replace(decided, is_finished=True)
    assert decisions.batch_ids() == {1: FINISHED}
    assert decisions.read(2) is None


def test_after_a_copy_that_was_not_ended_the_batch_is_finished(tmp_path: Path) -> None:
    spark_files(tmp_path, 1)
    decisions = Decisions(str(tmp_path))
    decisions.decide(1, HANDLES)
    Path(decisions.path(1, FINISHED)).write_bytes(Path(decisions.path(1)).read_bytes())
    assert decisions.batch_ids() == {1: FINISHED}


def test_old_decisions_that_are_finished_are_removed(tmp_path: Path) -> None:
    spark_files(tmp_path, 0, 1, 2, KEPT + 1)
    decisions = Decisions(str(tmp_path))
    for number in (0, 1, 2, KEPT + 1):
        decisions.decide(number, HANDLES)
    for number in (0, 2, KEPT + 1):
        decisions.finish(number)
    Path(f"{decisions.path(1)}.0123.tmp").touch()
    decisions.prune(KEPT + 1)
    assert not list((tmp_path / FOLDER).glob("*.tmp")), "what a driver that died left"
    assert decisions.batch_ids() == {1: DECIDED, 2: FINISHED, KEPT + 1: FINISHED}


def test_what_is_not_a_decision_is_named(tmp_path: Path) -> None:
    spark_files(tmp_path, 3)
    decisions = Decisions(str(tmp_path))
    decisions.decide(3, HANDLES)
    path = Path(decisions.path(3))
    path.write_text(path.read_text().replace('"batchId": 3', '"batchId": 4'))
    with pytest.raises(PipelineError, match=r"3\.decided is not a decision about batch 3 that this version"):
        decisions.read(3)
    path.write_text("{")
    with pytest.raises(PipelineError, match=r"3\.decided is not a decision of this sink"):
        decisions.read(3)
    # A file that was not ended is none.
    path.rename(f"{path}.tmp")
    assert decisions.read(3) is None


def test_the_query_is_told_by_sparks_own_file(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"option 'checkpointLocation' is .* sees no file 'metadata' of the query"):
        Decisions(str(tmp_path)).query_id()
    (tmp_path / "metadata").write_text('{"id":"b72122d6"}')
    assert Decisions(str(tmp_path)).query_id() == "b72122d6"


def test_a_place_that_nobody_knows_is_refused() -> None:
    with pytest.raises(OptionError, match="option 'checkpointLocation' is 'nowhere://x/y', which can not be opened"):
        Decisions("nowhere://x/y")
