"""What a log hands out: a flush that waits for the disk beside it, while the log goes on."""

from collections.abc import Callable

import pytest

from barnabas.storage.log import Log
from tests.storage.building import a_log, fill
from tests.storage.conftest import Disk
from tests.storage.memory_files import MemoryFiles


def test_a_flush_that_was_overtaken_by_a_truncation_promises_nothing(disk: Disk) -> None:
    log = a_log(disk.files, disk.path("orders-0"))
    fill(log, 4)
    pending = log.prepare_flush()
    assert pending is not None
    log.truncate_to(6)
    fill(log, 2)
    pending.run()
    log.finish_flush(pending)
    assert log.recovery_point == 0
    log.flush()
    assert log.recovery_point == 12


def test_a_flush_skips_segments_that_were_deleted_meanwhile(disk: Disk) -> None:
    log = a_log(disk.files, disk.path("orders-0"), segment_bytes=300)
    fill(log, 6)
    pending = log.prepare_flush()
    assert pending is not None
    for segment in log.delete_old_segments(lambda segment, _: segment.base_offset == 0):
        segment.delete()
    pending.run()
    log.finish_flush(pending)
    assert log.recovery_point == 18


class Interrupted(MemoryFiles):
    """A disk on which something else happens before the k-th operation."""

    def __init__(self) -> None:
        super().__init__()
        self.left: int | None = None
        self.interrupt: Callable[[], None] = lambda: None

    def look(self, operation: str, path: str) -> None:
        if self.left == 0:
            self.left = None
            self.interrupt()
        elif self.left is not None:
            self.left -= 1
        super().look(operation, path)


@pytest.mark.parametrize("is_removed", [False, True])
def test_a_flush_beside_retention_leaves_nothing_of_the_segments_that_went(is_removed: bool) -> None:
    """Their files get other names, and may be removed, at any moment of a flush on another thread."""
    moment = 0
    while True:
        files = Interrupted()
        log = a_log(files, "/data/orders-0", segment_bytes=300)
        fill(log, 6)
        pending = log.prepare_flush()
        assert pending is not None

        def retain(log: Log = log) -> None:
            for segment in log.delete_old_segments(lambda _, end_offset: end_offset <= 6):
                if is_removed:
                    log.remove_files(segment)

        files.left, files.interrupt = moment, retain
        pending.run()
        if files.left is not None:
            break  # The flush has fewer moments than that.
        names = [name for name in files.names("/data/orders-0") if name.startswith(f"{0:020d}.")]
        left = {name.removeprefix(f"{0:020d}") for name in names if not name.endswith(".snapshot")}
        assert left == (set() if is_removed else {".log.deleted", ".index", ".timeindex"}), moment
        log.finish_flush(pending)
        assert log.recovery_point == 18
        moment += 1
    assert moment > 5
