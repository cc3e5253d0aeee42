"""Files truncated, garbled, removed and swapped while the broker is down, after a stop and after a kill -9.

What is promised, and what each case asserts, with one line in the broker's log that says what happened and was done:

MENDED   every record is there; what was damaged is made again from the log.
CUT      a log file itself is damaged: what lies before the damage is there, and so is every segment behind it that was
         on the disk before (below the recovery point, or after a stop in order). Behind damage that was not yet on the
         disk everything goes, because it would leave a hole.
ASIDE    a log can not be said to belong to its topic: it is kept whole, under the name of a stray, or its topic is made
         anew from what is found on the disk.
REFUSED  nobody can say whose folder it is: the broker does not start, in one sentence, and changes no file.
UNSEEN   bytes in the middle of a file that was vouched for: they are not read at the start, which would take as long as
         a recovery. Every record but the damaged one is read all the same (behind a damaged header: from the next entry
         of the index on), and `barnabas verify` names file and position. For an index the remedy is to remove it: then
         it is made again.

After each but REFUSED and UNSEEN, `barnabas verify` has nothing to say against the folder once the broker has stopped.

Not told from what is right, and so not here: a checkpoint of offsets that is exchanged with another one of the same
format (what it says is believed as far as the logs reach), and a transaction index that is removed after a stop in
order (a segment without aborted transactions has none; readers at read_committed then see what was aborted in it).
"""

import contextlib
import io
import logging
import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import NamedTuple

import pytest

from barnabas.cli.main import main
from barnabas.client.connection import Connection
from barnabas.embedded import Broker, BrokerFailedError
from barnabas.records.batch import CorruptRecordError
from barnabas.storage.checkpoint import (
    CLEAN_SHUTDOWN_MARKER,
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from tests.broker.asking import connected, fetch, produce, records_of
from tests.faults.stopped_data import (
    DAMAGES,
    DELETED_BEFORE,
    ORDERS,
    OTHER,
    SETTINGS,
    StoppedData,
    build,
    read_all,
)
from tests.storage.builders import batch_of

STOPS = ("stop", "kill")
RECOVERY, WATERMARKS = RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT
START, CLEANED = LOG_START_OFFSET_CHECKPOINT, CLEANER_OFFSET_CHECKPOINT
EPOCHS = "orders-0/leader-epoch-checkpoint"
METADATA, WAL = "metadata.sqlite", "metadata.sqlite-wal"


class Promise(Enum):
    """What holds after some damage; see above."""

    MENDED = "mended"
    CUT = "cut"
    ASIDE = "aside"
    REFUSED = "refused"
    UNSEEN = "unseen"


MENDED, CUT, ASIDE, REFUSED, UNSEEN = Promise


class Case(NamedTuple):
    """A file, what is done to it, what is promised then, and what the broker says."""

    file: str
    damage: str
    promise: Promise
    says: str
    other: str = ""
    stops: tuple[str, ...] = STOPS


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> dict[str, StoppedData]:
    folder = tmp_path_factory.mktemp("stopped")
    return {stop: build(folder / stop, stop) for stop in STOPS}


@pytest.fixture(params=STOPS)
def whole(request: pytest.FixtureRequest, stopped: dict[str, StoppedData]) -> StoppedData:
    return stopped[request.param]


def verified(data: Path) -> str:
    """What `barnabas verify` finds fault with; nothing, as a rule."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = main(["verify", str(data)])
    return said.getvalue() if code else ""


def said_by(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(record.getMessage() for record in caplog.records if record.name.startswith("barnabas"))


def contents(data: Path) -> dict[str, bytes]:
    return {str(path.relative_to(data)): path.read_bytes() for path in data.rglob("*") if path.is_file()}


@contextlib.contextmanager
def served(data: Path) -> Iterator[Connection]:
    with Broker(in_process=True, data=data, settings=SETTINGS) as broker, connected(broker) as connection:
        yield connection


def place_of(whole: StoppedData, data: Path, name: str) -> Path:
    """`0.log` is the file of the first segment of `orders`, `orders-0/...` and all others are names in the folder."""
    segment, dot, suffix = name.partition(".")
    return whole.segment_file(data, dot + suffix, int(segment)) if segment.isdecimal() else data / name


CASES = (
    # Logs. The first segment is trusted after a kill too, the third is not, the last was being written.
    Case("0.log", "truncated", CUT, r"0{20}.index, position .* the index is made again"),
    Case("2.log", "truncated", CUT, r"\.log, position .* (from there on are cut off|the index is made again)"),
    Case("4.log", "truncated", CUT, r"orders-0 ends at offset \d+: offsets \d+ to 131 are lost"),
    *(
        Case(name, damage, CUT, r"\.log, position .* bytes from there on are cut off", stops=("kill",))
        for name in ("2.log", "4.log")
        for damage in ("garbled", "garbled header")
    ),
    *(
        Case(name, damage, UNSEEN, "", stops=stops)
        for name, stops in (("0.log", STOPS), ("2.log", ("stop",)), ("4.log", ("stop",)))
        for damage in ("garbled", "garbled header")
    ),
    Case("0.log", "removed", CUT, r"0{20}\.index has no log file and is removed"),
    Case("2.log", "removed", CUT, r"\.index has no log file and is removed"),
    Case("4.log", "removed", CUT, r"orders-0 ends at offset 123: offsets 123 to 131 are lost"),
    Case("2.log", "swapped", CUT, r"bytes from there on are cut off", "3.log"),
    # What is made again from the logs. Indexes of segments that are recovered are made again whatever they say.
    *(
        Case(f"{segment}{suffix}", damage, MENDED, r"made again|recovering 3 logs")
        for segment in (0, 2)
        for suffix in (".index", ".timeindex")
        for damage in ("truncated", "removed")
    ),
    Case("0.txnindex", "truncated", MENDED, r"0{20}\.txnindex, position .* the index is made again"),
    Case("0.txnindex", "garbled", MENDED, r"0{20}\.txnindex, position .* the index is made again"),
    Case("0.txnindex", "swapped", MENDED, r"0{20}\.txnindex, position .* the index is made again", "1.txnindex"),
    Case("2.txnindex", "removed", MENDED, r"recovering 3 logs", stops=("kill",)),
    Case("0.index", "garbled", UNSEEN, ""),
    Case("0.timeindex", "garbled", UNSEEN, ""),
    Case("2.index", "swapped", UNSEEN, "", "3.index", ("stop",)),
    Case("2.timeindex", "swapped", UNSEEN, "", "3.timeindex", ("stop",)),
    *(Case("2.index", damage, MENDED, "recovering 3 logs", "3.index", ("kill",)) for damage in ("garbled", "swapped")),
    *(
        Case("2.timeindex", damage, MENDED, "recovering 3 logs", "3.timeindex", ("kill",))
        for damage in ("garbled", "swapped")
    ),
    Case("2.snapshot", "truncated", UNSEEN, ""),
    Case("2.snapshot", "garbled", UNSEEN, ""),
    Case("2.snapshot", "removed", MENDED, ""),
    *(
        Case(EPOCHS, damage, MENDED, says, RECOVERY)
        for damage, says in (
            ("truncated", "leader-epoch-checkpoint, line .* the leader epochs are read from the log"),
            ("garbled", "leader-epoch-checkpoint, line .* the leader epochs are read from the log"),
            ("removed", "orders-0 has no leader epochs; they are read from the log"),
            ("swapped", "leader-epoch-checkpoint, line .* the leader epochs are read from the log"),
        )
    ),
    # Checkpoints of the folder. Without a mark of a clean stop nobody knows whether there was one.
    *(
        Case(name, damage, MENDED, f"{name}, line .*; the checkpoint is not used", EPOCHS, stops)
        for name, stops in ((RECOVERY, STOPS), (START, STOPS), (WATERMARKS, STOPS), (CLEANED, ("stop",)))
        for damage in ("truncated", "garbled", "swapped")
    ),
    *(
        Case(name, "removed", MENDED, f"{name} is gone, though the last stop was clean; ", stops=("stop",))
        for name in (RECOVERY, START, WATERMARKS)
    ),
    Case(RECOVERY, "removed", MENDED, "recovering 3 logs", stops=("kill",)),
    # Who the folders belong to.
    Case("orders-0/partition.metadata", "truncated", MENDED, "has no topic id until its topic gives it one"),
    Case("orders-0/partition.metadata", "garbled", MENDED, "has no topic id until its topic gives it one"),
    Case("orders-0/partition.metadata", "removed", MENDED, "has no topic id until its topic gives it one"),
    Case(
        "orders-0/partition.metadata",
        "swapped",
        ASIDE,
        "orders-0 had the log of another topic of that name, which is kept as",
        "other-0/partition.metadata",
    ),
    Case("meta.properties", "removed", MENDED, "meta.properties says nothing of .*; it is written again"),
    Case("meta.properties", "truncated", MENDED, "meta.properties says nothing of node.id; it is written again"),
    Case("meta.properties", "garbled", REFUSED, "meta.properties, line 1: the file is not text"),
    Case("meta.properties", "swapped", REFUSED, "meta.properties, line 1: .* is not of the form", RECOVERY),
    # The mark of a clean stop: only that it is there counts.
    Case(CLEAN_SHUTDOWN_MARKER, "removed", MENDED, "recovering 3 logs", stops=("stop",)),
    Case(CLEAN_SHUTDOWN_MARKER, "garbled", MENDED, "the last shutdown was clean", stops=("stop",)),
    Case(CLEAN_SHUTDOWN_MARKER, "truncated", MENDED, "the last shutdown was clean", stops=("stop",)),
    # Topics whose creation is lost with their metadata.
    Case(WAL, "removed", MENDED, "orders was found on the disk, with 1 partitions, and is taken over", stops=("kill",)),
    *(
        Case(
            WAL,
            damage,
            ASIDE,
            "belongs to no topic that is known here, and is kept as|and is taken over",
            "",
            ("kill",),
        )
        for damage in ("truncated", "garbled")
    ),
    Case(METADATA, "removed", MENDED, "orders was found on the disk, .*taken over", stops=("stop",)),
    Case(METADATA, "truncated", REFUSED, "metadata.sqlite: it is damaged", stops=("stop",)),
    Case(METADATA, "garbled", REFUSED, "metadata.sqlite: it is damaged", stops=("stop",)),
    Case(METADATA, "swapped", REFUSED, "metadata.sqlite: SQLite can not use it", "0.log", ("stop",)),
)


@pytest.mark.parametrize(
    ("stop", "case"),
    [
        pytest.param(stop, case, id=f"{case.file.rpartition('/')[2]}-{case.damage}-{stop}")
        for case in CASES
        for stop in case.stops
    ],
)
def test_damage_is_survived_as_promised(
    stopped: dict[str, StoppedData], tmp_path: Path, caplog: pytest.LogCaptureFixture, stop: str, case: Case
) -> None:
    caplog.set_level(logging.INFO, "barnabas")
    whole = stopped[stop]
    data = whole.copy_to(tmp_path / "data")
    path = place_of(whole, data, case.file)
    position = DAMAGES[case.damage](path, place_of(whole, data, case.other))
    if case.promise is REFUSED:
        before = contents(data)
        with pytest.raises(BrokerFailedError, match=case.says):
            Broker(in_process=True, data=data, settings=SETTINGS)
        assert contents(data) == before
        return
    check = {MENDED: check_mended, CUT: check_cut, ASIDE: check_aside, UNSEEN: check_unseen}[case.promise]
    check(whole, data, path, position)
    if case.says:
        lines = [line for line in said_by(caplog).splitlines() if re.search(case.says, line)]
        assert lines, said_by(caplog)
    assert "Traceback" not in caplog.text


def check_mended(whole: StoppedData, data: Path, path: Path, position: int) -> None:
    with served(data) as connection:
        assert read_all(connection, ORDERS) == whole.records[ORDERS]
        starts_anew = START in str(path)
        assert read_all(connection, OTHER, 0 if starts_anew else DELETED_BEFORE).items() >= whole.records[OTHER].items()
        assert produce(connection, ORDERS.topic, batch_of()).base_offset == len(whole.batches)
    assert verified(data) == ""


def check_cut(whole: StoppedData, data: Path, path: Path, position: int) -> None:
    segment = whole.bases.index(int(path.stem))
    is_removed = not path.exists()
    kept = whole.kept(segment, position, is_followed=is_removed or None)
    if position == 0 and not is_removed:
        kept -= {batch.offset for batch in whole.batches if batch.segment == segment + 1}  # Exchanged with that one.
    with served(data) as connection:
        found = read_all(connection, ORDERS, min(kept))
        assert found == {offset: whole.records[ORDERS][offset] for offset in kept}
        assert read_all(connection, OTHER, DELETED_BEFORE) == whole.records[OTHER]
        assert produce(connection, ORDERS.topic, batch_of()).base_offset > max(kept)
    assert verified(data) == ""


def check_aside(whole: StoppedData, data: Path, path: Path, position: int) -> None:
    logs = {partition: logs_in(data / str(partition)) for partition in (ORDERS, OTHER)}
    with served(data) as connection:
        for partition, start in ((ORDERS, 0), (OTHER, DELETED_BEFORE)):
            aside = [logs_in(folder) for folder in data.glob(f"{partition}.*-stray")]
            if aside:
                assert aside == [logs[partition]]
            else:
                assert read_all(connection, partition, start) == whole.records[partition]
    assert verified(data) == ""


def logs_in(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.glob("*.log")}


def check_unseen(whole: StoppedData, data: Path, path: Path, position: int) -> None:
    segment = whole.bases.index(int(path.stem))
    unread = []
    with served(data) as connection:
        for batch in whole.batches:
            answer = fetch(connection, ORDERS.topic, batch.offset, partition_max_bytes=1)
            try:
                found = {record.offset: record.value for record in records_of(answer)}
            except CorruptRecordError:
                found = {}
            if found != {batch.offset: whole.records[ORDERS][batch.offset]}:
                unread.append(batch)
    assert all(batch.segment == segment and batch.end > position for batch in unread)
    assert len(unread) in range(1, 5) if path.suffix == ".log" else not unread
    said = verified(data)
    if path.suffix in (".index", ".timeindex") and not said:
        return  # Reading came by the damage, and made the index again.
    assert str(path) in said
    if path.suffix != ".log":
        for file in data.rglob(f"*{path.suffix}"):
            file.unlink()
        with served(data) as connection:
            assert read_all(connection, ORDERS) == whole.records[ORDERS]
        assert verified(data) == ""


def test_a_mark_of_a_clean_stop_that_is_not_true_loses_only_what_is_torn(
    stopped: dict[str, StoppedData], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = stopped["kill"]
    data = whole.copy_to(tmp_path / "data")
    (data / CLEAN_SHUTDOWN_MARKER).write_bytes(b"")
    path = whole.segment_file(data, ".log", 4)
    with open(path, "r+b") as file:
        file.truncate(whole.batches[-1].end - 1)
    with served(data) as connection:
        kept = {batch.offset: whole.records[ORDERS][batch.offset] for batch in whole.batches[:-1]}
        assert read_all(connection, ORDERS) == kept
        assert produce(connection, ORDERS.topic, batch_of()).base_offset == whole.batches[-1].offset
    assert re.search(r"\.log has no index; it is made again", said_by(caplog))
    assert re.search(r"\.log, position \d+: .*bytes from there on are cut off", said_by(caplog))
    assert re.search(r"orders-0 ends at offset 131: offsets 131 to 131 are lost", said_by(caplog))
    assert verified(data) == ""
