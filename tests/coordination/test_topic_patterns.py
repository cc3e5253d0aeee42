"""Regular expressions of subscriptions: RE2's language, whole names, errors as answers."""

import subprocess
import sys

import pytest

from barnabas.coordination.topic_patterns import matching_topics, validate_pattern
from barnabas.wire.errors import ApiError, ErrorCode

NAMES = ["news", "news.world", "sports", "Übersee", "__consumer_offsets"]


@pytest.mark.parametrize(
    ("regex", "matched"),
    [
        ("news", {"news"}),
        ("news.*", {"news", "news.world"}),
        ("new", set()),
        ("(?i)NEWS", {"news"}),
        (".*s", {"news", "sports", "__consumer_offsets"}),
        ("Über.*", {"Übersee"}),
        (".*", set(NAMES)),
        ("", set()),
    ],
)
def test_whole_names_are_matched(regex: str, matched: set[str]) -> None:
    assert matching_topics(regex, NAMES) == matched


@pytest.mark.parametrize("regex", ["[", "(news", "*", r"(a)\1", "(?=news)", "a{2000}"])
def test_what_re2_does_not_know_is_invalid(regex: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ApiError) as raised:
        validate_pattern(regex)
    assert raised.value.code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert regex in raised.value.message
    assert capfd.readouterr().err == ""


def test_the_library_is_loaded_by_the_first_expression_only() -> None:
    program = (
        "import sys, barnabas.coordination.group_coordinator; from barnabas.coordination import topic_patterns; "
        "before = 're2' in sys.modules; topic_patterns.validate_pattern('a'); print(before, 're2' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert shown.split() == ["False", "True"]
