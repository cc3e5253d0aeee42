"""What a log hands out: a flush that waits for the disk beside it, while the log goes on."""

from tests.storage.building import a_log, fill
from tests.storage.conftest import Disk


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
