"""Subscriptions by regular expression (KIP-848): which topics does one match.

Rule 1: the language is RE2's, as in Kafka, where the same expression is compiled by RE2/J: no backtracking, so that no
client can keep a coordinator busy with an evil expression. An expression matches a topic if it matches the whole name.
Rule 2: the library is loaded when the first expression comes; a broker without such subscriptions never loads it.
"""

from collections.abc import Iterable
from functools import lru_cache
from importlib import import_module
from typing import Any

from barnabas.wire.errors import ApiError, ErrorCode

COMPILED_MAX = 1_000
"""How many compiled expressions are kept; others are compiled again when they are needed."""


@lru_cache(maxsize=COMPILED_MAX)
def _compiled(regex: str) -> Any:
    re2 = import_module("re2")
    options = re2.Options()
    options.log_errors = False  # A client's mistake is the client's answer, not a line on our standard error.
    try:
        return re2.compile(regex, options)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        if isinstance(reason, bytes):
            reason = reason.decode("utf-8", "replace")
        raise ApiError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"`{regex}` is not a valid regular expression: {reason}.",
        ) from None


def compile_pattern(regex: str) -> Any:
    """Return an expression whose `fullmatch` tells of a text; raises INVALID_REGULAR_EXPRESSION if it is none."""
    return _compiled(regex)


def validate_pattern(regex: str) -> None:
    """Raise INVALID_REGULAR_EXPRESSION if an expression is none."""
    _compiled(regex)


def matching_topics(regex: str, names: Iterable[str]) -> frozenset[str]:
    """Return those of the names that an expression matches as a whole."""
    matches = _compiled(regex).fullmatch
    return frozenset(name for name in names if matches(name) is not None)
