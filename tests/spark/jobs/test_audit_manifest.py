"""What the manifest alone gives away."""

from typing import cast

import pytest

from barnabas.spark.archives.archive import Archive
from barnabas.spark.archives.manifest import Commit, OffsetRange, commit_name, commit_text
from barnabas.spark.jobs.audit_manifest import check_files, check_ranges, offsets_text, read_commits


def commit(number: int, *spans: tuple[int, int, int], **fields: object) -> Commit:
    ranges = tuple(OffsetRange(partition=p, start=start, end=end, records=end - start) for p, start, end in spans)
    return Commit(number=number, timestamp_ms=0, ranges=ranges, **fields)  # type: ignore[arg-type]


class Folder:
    """As much of an archive as is needed here: texts by path."""

    def __init__(self, texts: dict[str, str]) -> None:
        self.files = self
        self._texts = texts

    def names(self, folder: str) -> list[str]:
        return sorted(path.rpartition("/")[2] for path in self._texts)

    def read(self, path: str) -> str:
        return self._texts[path]

    def path(self, path: str) -> str:
        return f"lake/{path}"


def test_missing_and_unreadable_commits_are_named_and_the_others_read() -> None:
    texts = {commit_name(number): commit_text(commit(number)) for number in (1, 2, 5)}
    texts |= {commit_name(3): "{", "_barnabas/commits/x.json": "", "_barnabas/commits/1.json.abc.tmp": ""}
    commits, findings = read_commits(cast(Archive, Folder(texts)))
    assert [each.number for each in commits] == [1, 2, 5]
    assert [each.what for each in findings] == [
        "commit 0 of the manifest is missing (_barnabas/commits/00000000000000000000.json)",
        "lake/_barnabas/commits/00000000000000000003.json is not JSON",
        "commit 4 of the manifest is missing (_barnabas/commits/00000000000000000004.json)",
    ]


def test_files_are_compared_with_their_sizes() -> None:
    commits = [
        commit(0, files={"a": 10, "b": 20, "old": 5}, dead_letter_files={"letters": 3}),
        commit(1, files={"c": 30}, removed=("old",)),
    ]
    sound, findings = check_files(commits, {"a": 10, "b": 19, "letters": 3, "left-behind": 1})
    assert sound == {"a", "letters"}
    assert [each.what for each in findings] == ["file b has 19 bytes instead of 20", "file c is missing"]


def test_gaps_and_overlaps_of_commits() -> None:
    assert check_ranges([commit(0, (0, 5, 10), (1, 0, 3)), commit(1, (0, 10, 20))]) == []
    findings = check_ranges([commit(0, (0, 0, 10)), commit(1, (0, 12, 20)), commit(2, (0, 15, 18), (1, 4, 5))])
    assert [(each.kind.value, each.partition, each.count) for each in findings] == [("gap", 0, 2), ("doubled", 0, 3)]
    assert findings[0].what == "offsets 10 to 11 of partition 0 are in no commit"
    assert findings[1].what == "offsets 15 to 17 of partition 0 are in more than one commit"


@pytest.mark.parametrize(
    ("offsets", "total", "text"),
    [
        ([3], 1, "offset 3"),
        ([9, 5, 6, 7], 4, "offsets 5 to 7, 9"),
        (range(0, 20, 2), 10, "offsets 0, 2, 4, 6, 8, and 5 more"),
        ([1], 500, "offsets 1, and 499 more"),
    ],
)
def test_offsets_in_words(offsets: list[int], total: int, text: str) -> None:
    assert offsets_text(offsets, total) == text
