"""Planted anomalies of records: each is found, and what looks like it and is none is not."""

from checker.history import READ_UNCOMMITTED, Outcome
from tests.checker.telling import Story


def test_a_history_without_fault_has_no_findings() -> None:
    story = Story()
    story.assigned("c1", 0)
    story.sent("p0", "a", 0)
    story.transaction("t0", [("b", 1), ("c", 2)])
    story.transaction("t0", [("d", 4)], Outcome.FAIL)
    story.sent("p1", "e", None, Outcome.UNKNOWN)
    story.sent("p1", "never came", None, Outcome.UNKNOWN)
    story.polled("c1", [(0, "a"), (1, "b")])
    story.polled("c1", [(2, "c"), (6, "e")])
    log = {0: "a", 1: "b", 2: "c", 4: "d", 6: "e"}
    assert story.kinds(log, {offset: value for offset, value in log.items() if value != "d"}) == set()


def test_an_acknowledged_record_that_is_gone_is_lost() -> None:
    story = Story()
    story.sent("p0", "a", 0)
    story.sent("p0", "b", 1)
    assert story.kinds(["a"]) == {"lost-write"}


def test_an_acknowledged_record_that_is_elsewhere_is_lost() -> None:
    story = Story()
    story.sent("p0", "a", 0)
    assert story.kinds({5: "a"}) == {"lost-write"}


def test_a_record_of_a_committed_transaction_that_is_gone_is_lost() -> None:
    story = Story()
    story.transaction("t0", [("a", None)])
    assert story.kinds([]) == {"lost-write"}


def test_a_record_that_was_acknowledged_and_aborted_stays_in_the_log() -> None:
    story = Story()
    story.transaction("t0", [("a", 0)], Outcome.FAIL)
    assert story.kinds([]) == {"lost-write"}


def test_a_record_that_was_read_and_is_gone_is_lost() -> None:
    story = Story()
    story.sent("p0", "a", None, Outcome.UNKNOWN)
    story.polled("c1", [(0, "a")], READ_UNCOMMITTED)
    assert story.kinds([]) == {"lost-write"}


def test_a_record_that_was_read_as_committed_and_is_so_no_longer_is_lost() -> None:
    story = Story()
    story.transaction("t0", [("a", 0)], Outcome.UNKNOWN)
    story.polled("c1", [(0, "a")])
    assert story.kinds(["a"], []) == {"lost-write"}


def test_a_record_that_is_there_twice_is_a_duplicate() -> None:
    story = Story()
    story.sent("p0", "a", 0)
    assert story.kinds(["a", "a"]) == {"duplicate"}


def test_a_record_in_two_partitions_is_a_duplicate() -> None:
    story = Story()
    story.sent("p0", "a", 0)
    story.end(["a"])
    assert story.kinds(["a"], partition="events-1") == {"duplicate", "unsent"}


def test_a_record_that_nobody_sent() -> None:
    assert Story().kinds(["a"]) == {"unsent"}


def test_a_record_whose_sending_failed() -> None:
    story = Story()
    story.sent("p0", "a", None, Outcome.FAIL)
    assert story.kinds(["a"]) == {"unsent"}


def test_one_offset_with_two_values() -> None:
    story = Story()
    story.sent("p0", "a", 0)
    story.sent("p1", "b", 0)
    assert "inconsistent-offset" in story.kinds(["a", "b"])


def test_one_offset_that_is_read_with_two_values() -> None:
    story = Story()
    story.sent("p0", "a", None, Outcome.UNKNOWN)
    story.sent("p1", "b", None, Outcome.UNKNOWN)
    story.polled("c1", [(0, "a")])
    assert "inconsistent-offset" in story.kinds(["b", "a"])


def test_records_of_a_producer_in_another_order() -> None:
    story = Story()
    story.sent("p0", "a", None, Outcome.UNKNOWN)
    story.sent("p0", "b", 0)
    assert story.kinds(["b", "a"]) == {"send-order"}


def test_records_of_two_producers_have_no_order() -> None:
    story = Story()
    story.sent("p0", "a", 1)
    story.sent("p1", "b", 0)
    assert story.kinds(["b", "a"]) == set()


def three_records(*polls: tuple[int, ...], start: int = 0, isolation: str = READ_UNCOMMITTED) -> Story:
    story = Story()
    for offset, value in enumerate("abc"):
        story.sent("p0", value, offset)
    story.assigned("c1", start)
    for offsets in polls:
        story.polled("c1", [(offset, "abc"[offset]) for offset in offsets], isolation)
    return story


def test_a_poll_that_goes_over_a_record() -> None:
    assert three_records((0, 2)).kinds("abc") == {"poll-skip"}


def test_two_polls_that_go_over_a_record() -> None:
    assert three_records((0,), (2,)).kinds("abc") == {"poll-skip"}


def test_a_poll_that_goes_over_the_first_record() -> None:
    assert three_records((1, 2)).kinds("abc") == {"poll-skip"}


def test_a_poll_that_begins_where_it_was_told_to() -> None:
    assert three_records((1, 2), start=1).kinds("abc") == set()


def test_a_poll_that_goes_back() -> None:
    assert three_records((0, 1), (1, 2)).kinds("abc") == {"poll-order"}


def test_a_consumer_that_is_sent_back_goes_back() -> None:
    story = three_records((0, 1))
    story.assigned("c1", 0)
    story.polled("c1", [(0, "a")])
    assert story.kinds("abc") == set()


def test_a_member_begins_where_its_group_is() -> None:
    assert three_records((2,), start=-1).kinds("abc") == set()


def test_what_is_aborted_is_gone_over_by_one_level_only() -> None:
    for isolation, kinds in (("read_committed", set()), (READ_UNCOMMITTED, {"poll-skip"})):
        story = Story()
        story.sent("p0", "a", 0)
        story.transaction("t0", [("b", 1)], Outcome.FAIL)
        story.sent("p0", "c", 3)
        story.assigned("c1", 0)
        story.polled("c1", [(0, "a"), (3, "c")], isolation)
        assert story.kinds({0: "a", 1: "b", 3: "c"}, {0: "a", 3: "c"}) == kinds


def test_a_reader_that_never_gets_to_the_end() -> None:
    story = Story()
    story.sent("p0", "a", 0)
    assert story.kinds(["a"], position=0) == {"unseen"}


def test_a_record_without_transaction_that_is_not_committed() -> None:
    story = Story()
    story.sent("p0", "a", None, Outcome.UNKNOWN)
    assert story.kinds(["a"], []) == {"unseen"}


def test_a_record_that_is_only_committed() -> None:
    story = Story()
    story.sent("p0", "a", None, Outcome.UNKNOWN)
    assert "unseen" in story.kinds([], ["a"])
