"""Planted anomalies of groups: offsets that go back, that nobody committed, or that leave records out."""

import pytest

from checker.history import Outcome
from tests.checker.telling import INFINITY, Story


def test_an_offset_that_goes_back() -> None:
    story = Story()
    story.commits("g", 5)
    story.commits("g", 9)
    story.found_at("g", 5)
    assert story.kinds() == {"lost-commit"}


def test_an_offset_that_is_gone() -> None:
    story = Story()
    story.commits("g", 5)
    story.found_at("g", -1)
    assert story.kinds() == {"lost-commit"}


def test_an_offset_that_nobody_committed() -> None:
    story = Story()
    story.found_at("g", 5)
    assert story.kinds() == {"lost-commit"}


def test_an_offset_whose_commit_failed() -> None:
    story = Story()
    story.commits("g", 5, Outcome.FAIL)
    story.found_at("g", 5)
    assert story.kinds() == {"lost-commit"}


def test_the_newest_offset_and_none_before_the_first() -> None:
    story = Story()
    story.found_at("g", -1)
    story.commits("g", 9)
    story.commits("g", 5)
    story.found_at("g", 5)
    assert story.kinds() == set()


@pytest.mark.parametrize("found", [5, 9])
def test_commits_at_the_same_time_have_no_order(found: int) -> None:
    story = Story()
    story.commits("g", 5, at=(1, 4))
    story.commits("g", 9, at=(2, 3))
    story.found_at("g", found)
    assert story.kinds() == set()


@pytest.mark.parametrize("found", [5, 9])
def test_a_commit_that_nobody_knows_of_may_have_happened(found: int) -> None:
    story = Story()
    story.commits("g", 5)
    story.commits("g", 9, Outcome.UNKNOWN)
    story.found_at("g", found)
    assert story.kinds() == set()


def test_a_commit_that_nobody_knew_of_and_that_was_seen_stays() -> None:
    story = Story()
    story.commits("g", 5)
    story.commits("g", 9, Outcome.UNKNOWN, at=(5, INFINITY))
    story.found_at("g", 9, at=(10, 11))
    story.found_at("g", 5, at=(12, 13))
    assert story.kinds() == {"lost-commit"}


def test_a_commit_in_an_aborted_transaction_does_not_count() -> None:
    story = Story()
    story.commits("g", 5)
    story.transaction("t0", [], Outcome.FAIL, group="g", consumed={"events-0": 9})
    story.found_at("g", 9)
    assert "lost-commit" in story.kinds()


def test_a_commit_in_a_committed_transaction_that_is_lost() -> None:
    story = Story()
    story.commits("g", 5)
    story.transaction("t0", [], group="g", consumed={"events-0": 9})
    story.found_at("g", 5)
    assert "lost-commit" in story.kinds()


def reading_group(*offsets: int) -> Story:
    story = Story()
    for offset, value in enumerate("abc"):
        story.sent("p0", value, offset)
    for offset in offsets:
        story.assigned(f"member-{offset}", -1)
        story.polled(f"member-{offset}", [(offset, "abc"[offset])], group="g")
    story.commits("g", 3)
    story.found_at("g", 3)
    return story


def test_a_record_that_no_member_was_given() -> None:
    assert reading_group(0, 2).kinds("abc") == {"group-skip"}


def test_records_that_different_members_were_given() -> None:
    assert reading_group(1, 0, 2).kinds("abc") == set()
