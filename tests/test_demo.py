"""`make demo`: every step says what came out, nothing else is said, and the exit code tells whether all of it held."""

import re
from pathlib import Path

import pytest

from barnabas.clock import ManualClock
from barnabas.embedded import Broker
from demo.shop import ORDERS, PAYMENTS, Shop
from demo.story import Story
from tests.kafka_peer.jars import PeerUnavailableError, require_java
from tests.test_docs import ROOT, commands, run

STEPS = 13
DEMO_SECONDS_MAX = 500


def test_the_demo_runs(tmp_path: Path) -> None:
    try:
        require_java()
    except PeerUnavailableError as reason:
        pytest.skip(str(reason))
    assert commands("README.md", "make") == ["make demo", "make test"]
    page = tmp_path / "orders.html"
    finished = run(f'make demo ARGS="--events 1000 --rate 200 --page {page}"', ROOT, timeout_s=DEMO_SECONDS_MAX)
    if finished.returncode or finished.stderr:
        pytest.fail(f"exit code {finished.returncode}\n{finished.stdout}\n{finished.stderr[-3000:]}")
    said = finished.stdout
    assert re.findall(r"^(\d+)\. ", said, re.MULTILINE) == [str(number) for number in range(1, STEPS + 1)]
    checks = re.findall(r"^   (.*): (yes|NO)\.$", said, re.MULTILINE)
    assert len(checks) == 10
    assert {answer for _, answer in checks} == {"yes"}
    assert "Nothing is lost, nothing is doubled" in said
    assert "no faults" in said
    assert "<html" in page.read_text(encoding="utf-8")


def test_a_shop_is_the_same_for_the_same_seed(tmp_path: Path) -> None:
    shops = [Shop(7), Shop(7)]
    days = [[event for event, _ in zip(shop.today(), range(500), strict=False)] for shop in shops]
    assert days[0] == days[1]
    assert {event.topic for event in days[0]} == {ORDERS, PAYMENTS}
    shops[0].write_yesterday(tmp_path / "orders.csv", 10)
    assert len((tmp_path / "orders.csv").read_text(encoding="utf-8").splitlines()) == 11
    assert shops[0].order_records == shops[1].order_records + 10


def test_what_does_not_hold_is_said_and_remembered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    story = Story(
        folder=tmp_path,
        page=tmp_path / "page.html",
        yesterday=0,
        events=0,
        events_a_second=1,
        shop=Shop(7),
        broker=Broker(),
        clock=ManualClock(),
    )
    story.check("Two is two", True)
    story.check("One is two", False)
    assert story.failures == ["One is two"]
    assert capsys.readouterr().out == "   Two is two: yes.\n   One is two: NO.\n"
