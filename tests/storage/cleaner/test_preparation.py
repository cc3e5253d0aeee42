"""From a log to a job and back: what makes a clean one that is thrown away."""

from collections.abc import Callable

import pytest

from barnabas.storage.cleaner.choice import cleanable_part
from barnabas.storage.cleaner.cleaning import LogCleaning
from barnabas.storage.cleaner.job import ActiveProducer, CleanedGroup, SourceSegment
from barnabas.storage.cleaner.preparation import PreparedClean, StaleCleanError, log_view
from barnabas.storage.log import Log
from tests.storage.builders import COORDINATOR_EPOCH, NOW_MS, marker_of, open_log, sent_by
from tests.storage.building import bases, consume, fill
from tests.storage.cleaner.cleaning_words import SMALL
from tests.storage.memory_files import MemoryFiles


def a_prepared_clean(files: MemoryFiles) -> tuple[PreparedClean, list[CleanedGroup]]:
    log = open_log(files, cleanup_policy=("compact", "delete"), segment_bytes=500)
    fill(log, 12)
    log.roll()
    log.flush()
    prepared = PreparedClean(log, cleanable_part(log_view(log), NOW_MS), SMALL, NOW_MS)
    answers = list(LogCleaning(files, prepared.job).run())
    return prepared, [answer for answer in answers if isinstance(answer, CleanedGroup)]


def test_a_job_says_what_the_log_is(memory_files: MemoryFiles) -> None:
    log = open_log(memory_files, cleanup_policy=("compact",), segment_bytes=500)
    log.append_as_leader(sent_by(7, 0, 2, transactional=True), 0)
    log.append_as_leader(marker_of(7, commit=False, timestamp=NOW_MS + 9), 0, is_client=False)
    log.append_as_leader(marker_of(8, commit=True), 0, is_client=False)
    log.high_watermark_to_end()
    log.roll()
    log.flush()
    job = PreparedClean(log, cleanable_part(log_view(log), NOW_MS), SMALL, NOW_MS).job
    assert job.segments == (SourceSegment(0, log.segments.first.size, 0, 12),)
    assert (job.end_offset, job.first_dirty_offset, job.directory) == (4, 0, log.directory)
    assert [(one.producer_id, one.first_offset, one.last_offset) for one in job.aborted] == [(7, 0, 2)]
    assert job.producers == (
        ActiveProducer(7, 0, 1, COORDINATOR_EPOCH, NOW_MS + 9),
        ActiveProducer(8, 0, -1, COORDINATOR_EPOCH, NOW_MS),
    )


def test_groups_are_swapped_in(memory_files: MemoryFiles) -> None:
    prepared, groups = a_prepared_clean(memory_files)
    before = bases(prepared.log)
    assert len(groups) > 2
    replaced = [segment for group in groups for segment in prepared.swap(group)]
    assert bases(prepared.log) == before
    assert [segment.path.endswith(".deleted") for segment in replaced] == [True] * len(replaced)
    assert [record.offset for record in consume(prepared.log, 0)] == [33, 34, 35]


def _delete(log: Log) -> None:
    log.delete_old_segments(lambda segment, _: segment.base_offset == 0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda log: log.truncate_to(20), "was truncated"),
        (lambda log: log.truncate_fully_and_start_at(50), "was truncated"),
        (lambda log: log.close(), "was closed"),
        (_delete, "were deleted"),
    ],
    ids=["truncated", "emptied", "closed", "deleted"],
)
def test_a_clean_of_what_changed_is_thrown_away(
    memory_files: MemoryFiles, change: Callable[[Log], None], words: str
) -> None:
    prepared, groups = a_prepared_clean(memory_files)
    change(prepared.log)
    before = {name: content for name, content in memory_files.contents().items() if ".cleaned" not in name}
    with pytest.raises(StaleCleanError, match=words):
        prepared.swap(groups[0])
    assert {name: it for name, it in memory_files.contents().items() if ".cleaned" not in name} == before


def test_what_is_appended_meanwhile_does_not_matter(memory_files: MemoryFiles) -> None:
    prepared, groups = a_prepared_clean(memory_files)
    fill(prepared.log, 5)
    for group in groups:
        prepared.swap(group)
    assert [record.offset for record in consume(prepared.log, 0)] == [33, 34, 35, *range(36, 51)]
