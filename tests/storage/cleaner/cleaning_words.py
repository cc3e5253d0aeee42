"""Words for the tests of the cleaner: `clean(log, files, now_ms)` does all that a broker and its process would do."""

from barnabas.storage.cleaner.choice import cleanable_part
from barnabas.storage.cleaner.cleaning import LogCleaning
from barnabas.storage.cleaner.job import (
    CleanedGroup,
    CleaningResult,
    decode_answer,
    decode_job,
    encode_answer,
    encode_job,
)
from barnabas.storage.cleaner.preparation import CleanerLimits, PreparedClean, log_view
from barnabas.storage.files import Files
from barnabas.storage.log import Log

SMALL = CleanerLimits(dedupe_buffer_size=24 * 64, io_buffer_size=256)


def clean(log: Log, files: Files, now_ms: int, limits: CleanerLimits = SMALL) -> CleaningResult | None:
    """Clean a log once, whatever its dirty ratio; None when there is nothing to clean."""
    part = cleanable_part(log_view(log), now_ms)
    if not part.dirty_bytes:
        return None
    prepared = PreparedClean(log, part, limits, now_ms)
    # The job and the answers travel as text between a broker and its process.
    job = decode_job(encode_job(prepared.job))
    assert job == prepared.job
    for answer in LogCleaning(files, job).run():
        assert decode_answer(encode_answer(answer)) == answer
        if isinstance(answer, CleanedGroup):
            replaced = prepared.swap(answer)
            log.sync_directory()
            for segment in replaced:
                segment.delete()
        else:
            log.first_dirty_offset = answer.end_offset
            return answer
    raise AssertionError("a clean ends with its result")
