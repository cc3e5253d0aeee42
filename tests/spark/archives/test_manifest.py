"""What an archive says of itself: it comes back as it was written, and what is none is refused by name."""

import pytest

from barnabas.spark.archives.manifest import (
    ArchiveDescription,
    Commit,
    OffsetRange,
    commit_name,
    commit_text,
    description_text,
    read_commit,
    read_description,
)
from barnabas.spark.errors import PipelineError

ORDERS = ArchiveDescription(topic="orders", topic_id="abc", decode="json", schema="a INT")


def test_a_description_comes_back() -> None:
    assert read_description(description_text(ORDERS), "here") == ORDERS


def test_a_commit_comes_back() -> None:
    commit = Commit(
        number=17,
        timestamp_ms=5,
        ranges=(OffsetRange(partition=0, start=3, end=9, records=5),),
        files={"data/a.parquet": 100},
        dead_letters=1,
    )
    assert read_commit(commit_text(commit), "here") == commit
    assert commit_name(17) == "_barnabas/commits/00000000000000000017.json"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "here is not JSON"),
        ("[]", "here is not a JSON object"),
        ('{"format": 2}', "here has format 2, and this version reads format 1"),
        ('{"format": 1, "topic": "a"}', "here does not describe an archive"),
    ],
)
def test_what_is_no_description_is_refused(text: str, reason: str) -> None:
    with pytest.raises(PipelineError, match=reason):
        read_description(text, "here")


@pytest.mark.parametrize("text", ["{}", '{"ranges": [{}]}', '{"ranges": [], "number": 1}', '{"ranges": 1}'])
def test_what_is_no_commit_is_refused(text: str) -> None:
    with pytest.raises(PipelineError, match="here is not a commit"):
        read_commit(text, "here")
