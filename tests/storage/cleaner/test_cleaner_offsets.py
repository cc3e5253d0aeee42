"""`cleaner-offset-checkpoint`: written for logs that were cleaned, read at the start, never past what was cleaned."""

from barnabas.model import NO_OFFSET, TopicPartition
from barnabas.storage.checkpoint import CLEANER_OFFSET_CHECKPOINT, read_offsets
from barnabas.storage.log import Log
from barnabas.storage.log_manager import LogManager
from tests.storage.builders import batch_of
from tests.storage.cleaner.cleaning_words import clean
from tests.storage.memory_files import SYNCED_ONLY, MemoryFiles
from tests.storage.test_log_manager import A, Settings, started

PATH = f"{A}/{CLEANER_OFFSET_CHECKPOINT}"
CLEANED, OTHER = TopicPartition("cleaned", 0), TopicPartition("other", 0)


def compacted(files: MemoryFiles) -> LogManager:
    return started(files, A, settings=Settings(segment_bytes=300, cleanup_policy=("compact",)))


def a_cleaned_log(files: MemoryFiles) -> tuple[LogManager, Log]:
    manager = compacted(files)
    manager.get_or_create_log(OTHER)
    log = manager.get_or_create_log(CLEANED)
    for _ in range(10):
        log.append_as_leader(batch_of(2), 0)
    log.high_watermark_to_end()
    log.flush()
    manager.checkpoint_recovery_points()
    clean(log, files, 0)
    manager.checkpoint_cleaner_offsets()
    assert log.first_dirty_offset == log.segments.last.base_offset > 10
    return manager, log


def test_only_logs_that_were_cleaned_are_in_it(memory_files: MemoryFiles) -> None:
    _, log = a_cleaned_log(memory_files)
    assert read_offsets(memory_files, PATH) == {CLEANED: log.first_dirty_offset}


def test_it_is_read_at_the_start(memory_files: MemoryFiles) -> None:
    manager, log = a_cleaned_log(memory_files)
    manager.shutdown()
    again = compacted(memory_files)
    assert again.current_logs[CLEANED].log.first_dirty_offset == log.first_dirty_offset
    assert again.current_logs[OTHER].log.first_dirty_offset == NO_OFFSET


def test_it_is_lowered_before_a_log_is_cut(memory_files: MemoryFiles) -> None:
    manager, log = a_cleaned_log(memory_files)
    manager.truncate_to(CLEANED, log.first_dirty_offset - 1)
    assert log.first_dirty_offset == log.log_end_offset
    assert read_offsets(memory_files, PATH) == {CLEANED: log.log_end_offset}


def test_a_log_that_lost_its_end_is_dirty_from_there_on(memory_files: MemoryFiles) -> None:
    """What is appended where other records were before the power cut is not taken for cleaned."""
    manager, log = a_cleaned_log(memory_files)
    end = log.log_end_offset
    log.append_as_leader(batch_of(2), 0)
    log.first_dirty_offset = log.log_end_offset
    manager.checkpoint_cleaner_offsets()
    found = memory_files.crash(SYNCED_ONLY)
    again = compacted(found)
    assert again.current_logs[CLEANED].log.first_dirty_offset == end
    assert read_offsets(found, PATH) == {CLEANED: end}
