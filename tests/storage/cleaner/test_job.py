"""Jobs and answers as lines of text; `cleaning_words.clean` sends those of the model tests through them too."""

import pytest

from barnabas.storage.cleaner.job import (
    ActiveProducer,
    CleanedGroup,
    CleaningError,
    CleaningJob,
    CleaningResult,
    SourceSegment,
    decode_answer,
    decode_job,
    encode_answer,
    encode_job,
)
from barnabas.storage.transaction_index import AbortedTransaction


def test_a_job_is_the_same_on_the_other_side() -> None:
    job = CleaningJob(
        directory="/data/t-0",
        segments=(SourceSegment(0, 10, 8, 12), SourceSegment(7, 20, 16, 24)),
        end_offset=30,
        first_dirty_offset=3,
        now_ms=1,
        delete_retention_ms=2,
        segment_bytes=3,
        segment_index_bytes=4,
        index_interval_bytes=5,
        decompressed_bytes_max=6,
        dedupe_buffer_size=7,
        io_buffer_size=8,
        load_factor=0.9,
        bytes_per_second_max=1.7976931348623157e308,
        aborted=(AbortedTransaction(1, 2, 3, 4),),
        producers=(ActiveProducer(1, 2, -1, 4, 5),),
    )
    line = encode_job(job)
    assert "\n" not in line
    assert decode_job(line) == job


@pytest.mark.parametrize(
    "answer", [CleanedGroup((0, 7), 5, 8, 12, True), CleaningResult(30, 100, 50, 3, 0)], ids=["group", "result"]
)
def test_an_answer_is_the_same_on_the_other_side(answer: CleanedGroup | CleaningResult) -> None:
    assert decode_answer(encode_answer(answer)) == answer


def test_an_error_keeps_its_number() -> None:
    error = decode_answer(encode_answer(CleaningError("the disk is full", 28)))
    assert isinstance(error, CleaningError)
    assert (error.reason, error.errno) == ("the disk is full", 28)


@pytest.mark.parametrize("line", ["[]", "{}", '{"other": []}', '{"group": 1, "result": 2}', "Traceback"])
def test_any_other_line_is_refused(line: str) -> None:
    with pytest.raises(ValueError):
        decode_answer(line)
