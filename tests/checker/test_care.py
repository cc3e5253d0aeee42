"""The long run, kept short; what its ledgers say of readings that are made up; and how levels are judged.

BARNABAS_SEED repeats the choices of a run, BARNABAS_CARE_SECONDS makes it longer.
"""

import os
import random
from pathlib import Path

import pytest

from checker.__main__ import care_report
from checker.care.keyed_ledger import KeyedLedger, is_tombstone, value_of
from checker.care.page import page
from checker.care.rolling_ledger import OVERHEAD_BYTES, Retention, RollingLedger
from checker.care.run import run_care
from checker.care.samples import SERIES, Sample, growth, judge, read_sample
from checker.model import Finding

SECONDS = float(os.environ.get("BARNABAS_CARE_SECONDS", "16"))

KEY = "key"
TOMBSTONE = next(number for number in range(1, 99) if is_tombstone(KEY, number))


def test_a_short_long_run_finds_nothing(tmp_path: Path) -> None:
    seed = int(os.environ.get("BARNABAS_SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"to do it again: BARNABAS_SEED={seed}")
    result = run_care(seed, SECONDS, tmp_path)
    said = f"BARNABAS_SEED={seed}\n{care_report(result)}"
    assert not result.findings, said
    assert result.faults, said
    for what in ("passes over cleaned records", "starts moved by retention", "DeleteRecords", "topics"):
        assert result.counts[what] > 0, said
    assert max(sample.life for sample in result.samples) > 0, said
    text = result.page.read_text(encoding="utf-8")
    assert text.count("<svg") == len(SERIES)
    assert "http" not in text


class Keyed:
    """A ledger with what it complained of."""

    def __init__(self) -> None:
        self.kinds: list[str] = []
        self.ledger = KeyedLedger("accounts-0", lambda kind, sentence: self.kinds.append(kind))

    def wrote(self, count: int) -> "Keyed":
        """Numbers 1 to `count` of the key, at offsets from 0 on."""
        for offset in range(count):
            self.ledger.acknowledged(KEY, self.ledger.intends(KEY), offset)
        return self

    def found(self, *seen: tuple[int, int], start: int = 0, is_slow: bool = False) -> list[str]:
        """What a pass complains of that sees (offset, number) pairs."""
        one = self.ledger.begin_pass("reader", start)
        for offset, number in seen:
            one.takes(offset, KEY, number, value_of(KEY, number))
        one.ends(is_slow=is_slow)
        return self.kinds


def live_count() -> int:
    """So many numbers of the key that none up to there is a tombstone."""
    return TOMBSTONE - 1


def test_the_key_has_live_numbers_before_its_first_tombstone() -> None:
    assert live_count() >= 3


def test_the_last_value_of_a_key_is_enough() -> None:
    last = live_count()
    assert Keyed().wrote(last).found((last - 1, last)) == []


def test_what_was_acknowledged_and_is_not_read_is_lost() -> None:
    last = live_count()
    assert Keyed().wrote(last).found((last - 2, last - 1)) == ["lost-key"]
    assert Keyed().wrote(last).found() == ["lost-key"]
    # From behind it on nobody expects it.
    assert Keyed().wrote(last).found(start=last) == []


def test_a_key_whose_tombstone_is_gone_may_be_missing_and_may_not_come_back() -> None:
    assert Keyed().wrote(TOMBSTONE).found() == []
    assert Keyed().wrote(TOMBSTONE).found((0, 1), (TOMBSTONE - 1, TOMBSTONE)) == []
    assert Keyed().wrote(TOMBSTONE).found((0, 1)) == ["resurrected"]
    assert Keyed().wrote(TOMBSTONE).found((0, 1), is_slow=True) == []


def test_offsets_values_and_order_are_checked() -> None:
    last = live_count()
    assert Keyed().wrote(last).found((last, last)) == ["changed-offset"]
    assert Keyed().wrote(last).found((last - 1, last), (last - 2, last - 1)) == ["offset-order", "key-order"]
    assert Keyed().wrote(last).found((last - 1, last), (last, last + 1)) == ["unsent"]
    keyed = Keyed().wrote(last)
    one = keyed.ledger.begin_pass("reader", 0)
    one.takes(last - 1, KEY, last, b"something else")
    one.ends()
    assert keyed.kinds == ["wrong-value"]


class Rolling:
    """A ledger of ten records of 100 bytes, one every second, with what it complained of."""

    def __init__(self, **retention: int) -> None:
        self.kinds: list[str] = []
        complain = lambda kind, sentence: self.kinds.append(kind)  # noqa: E731 (it is one line, and used once)
        self.ledger = RollingLedger("rolling-0", Retention(**retention), complain)
        for offset in range(10):
            self.ledger.acknowledged(offset, 100, 1_000 * offset)

    def start_at(self, offset: int, now_ms: int = 10_000) -> list[str]:
        """What is found when the log starts there."""
        self.ledger.told_start("reader", offset, self.ledger.deleted, 10, now_ms)
        return self.kinds


def test_retention_by_size_leaves_as_much_as_it_says() -> None:
    size = 5 * (100 + OVERHEAD_BYTES)
    assert Rolling(size_bytes=size).start_at(5) == []
    assert Rolling(size_bytes=size).start_at(6) == ["deleted-too-much"]
    assert Rolling().start_at(1) == ["deleted-too-much"]


def test_retention_by_age_takes_what_is_old() -> None:
    assert Rolling(age_ms=5_000).start_at(6) == []
    assert Rolling(age_ms=5_000).start_at(7) == ["deleted-too-early"]


def test_what_was_deleted_by_request_may_be_gone_and_stays_so() -> None:
    rolling = Rolling(age_ms=5_000)
    rolling.ledger.asks_to_delete(8)
    assert rolling.start_at(8) == []
    rolling.ledger.deleted_up_to(8)
    assert rolling.start_at(7) == ["deleted-is-back"]


@pytest.mark.parametrize(
    ("position", "offsets", "kinds"),
    [(3, [3, 4], []), (3, [4, 5], ["gap"]), (3, [3, 5], ["gap"]), (1, [1, 2], ["below-start"]), (3, [], [])],
)
def test_there_is_a_record_at_every_offset_from_the_start_on(
    position: int, offsets: list[int], kinds: list[str]
) -> None:
    rolling = Rolling()
    rolling.ledger.takes("reader", position, 2, offsets)
    assert rolling.kinds == kinds


def sample(at_s: int, life: int = 0, **figures: int) -> Sample:
    usual = {"memory": 50 << 20, "handles": 50, "threads": 8, "children": 0, "disk": 10 << 20}
    return Sample(at_s=float(at_s), life=life, **{**usual, **figures})


@pytest.mark.parametrize(("name", "step"), [("memory", 1 << 20), ("handles", 2), ("threads", 1), ("disk", 1 << 20)])
def test_what_grows_all_the_time_is_found(name: str, step: int) -> None:
    base = getattr(sample(0), name)
    grown = [sample(at, **{name: base + step * at}) for at in range(60)]
    assert [finding.kind for finding in growth(judge(grown))] == ["growth"]
    # In its warm-up it may.
    assert growth(judge([sample(at, **{name: base + step * min(at, 14)}) for at in range(60)])) == []


def test_a_life_that_grows_is_found_even_if_the_next_one_begins_anew() -> None:
    samples = [sample(at, at // 60, memory=(50 << 20) + (1 << 20) * (at % 60)) for at in range(120)]
    assert {level.whose for level in judge(samples) if not level.is_level} == {"life 1", "life 2"}


def test_the_page_escapes_what_it_shows() -> None:
    samples = [sample(at, at // 30) for at in range(60)]
    findings = [Finding(kind="trouble", sentence="<script>")]
    text = page("a & b", samples, [(30.0, "kill")], judge(samples), {"records": 3}, findings)
    assert "&lt;script&gt;" in text
    assert "<script>" not in text
    assert "a &amp; b" in text


def test_a_process_can_be_looked_at(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(5000))
    found = read_sample(os.getpid(), tmp_path, 1.0, 0)
    assert found is not None
    assert found.memory > 1 << 20
    assert found.handles > 2
    assert found.threads >= 1
    assert found.disk >= 5000
    assert read_sample(2**22 + 1, tmp_path, 1.0, 0) is None
