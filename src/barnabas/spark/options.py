"""How the options of a query are read: a table of rows for each format, and values that are checked by it.

Names are compared without regard to case, because Spark hands them over in lower case.

Rule 1: an option that nobody knows is refused by name, with the nearest that is known: a typing error in
`failOnDataLoss` or `kafka.isolation.level` changes what is read. Kafka's own clients would warn in a log, and go on.
Rule 2: a setting that Kafka's clients have and that is not in a table is accepted, and has no effect; but `connecting`
reads those that say where the cluster is and how to speak to it.
"""

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from barnabas.spark.errors import OptionError
from barnabas.spark.kafka_settings import KAFKA_SETTINGS, is_kafka_setting

PREFIX = "kafka."
BOOLEAN = "true or false"

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
# More digits than any limit has are no number of ours, and Python takes long for very many.
_DIGITS_MAX = 19

# What Spark hands to every source and sink, and what people set on the wrong side of a query without harm.
_SPARKS_OWN = frozenset(
    {
        "path",
        "paths",
        "checkpointlocation",
        "queryname",
        "outputmode",
        "triggerinterval",
        "provider",
        "mergeschema",
        "overwriteschema",
    }
)


class OptionRow(NamedTuple):
    """An option: its name, its default (empty where it has none), what it may be, what it does, and where."""

    name: str
    default: str
    values: str
    meaning: str
    queries: str = "batch and streaming"


class GivenOptions:
    """The options of one query, with the defaults of a table behind them."""

    def __init__(
        self, options: Mapping[str, str], rows: Sequence[OptionRow], refused: Mapping[str, str] | None = None
    ) -> None:
        """Args:
        options: What the query says.
        rows: The options that there are.
        refused: Settings of Kafka's clients that must not be given, each with the reason.

        Raises:
            OptionError: An option is not known, or refused.
        """
        self._rows = {row.name.lower(): row for row in rows}
        self._options = {name.lower(): value.strip() for name, value in options.items()}
        for name in self._options:
            self._check_name(name, refused or {})

    def _check_name(self, name: str, refused: Mapping[str, str]) -> None:
        if name in refused:
            raise OptionError(name, refused[name])
        if name in self._rows or name in _SPARKS_OWN:
            return
        known = [row.name for row in self._rows.values()]
        if name.startswith(PREFIX):
            if is_kafka_setting(name.removeprefix(PREFIX)):
                return
            known += [PREFIX + setting for setting in KAFKA_SETTINGS]
        by_lower = {each.lower(): each for each in known}
        near = difflib.get_close_matches(name, sorted(by_lower), n=1)
        raise OptionError(name, f"is not known{f'; is {by_lower[near[0]]!r} meant?' if near else ''}")

    def is_given(self, name: str) -> bool:
        """Tell whether the query says anything of an option."""
        return name.lower() in self._options

    def given(self, name: str) -> str | None:
        """Return what the query says, or None; defaults do not count."""
        return self._options.get(name.lower())

    def text(self, name: str) -> str:
        """Return what the query says, or the default."""
        return self._options.get(name.lower(), self._rows[name.lower()].default)

    def choice(self, name: str, values: Sequence[str]) -> str:
        """Read one of some words."""
        value = self.text(name).lower()
        if value not in values:
            raise OptionError(name, f"is {' or '.join(values)}, but {self.text(name)!r} was given")
        return value

    def boolean(self, name: str) -> bool:
        """Read true or false."""
        return self.choice(name, ("true", "false")) == "true"

    def number(self, name: str, least: int = 1, most: int = INT64_MAX) -> int:
        """Read a whole number that has a default."""
        text = self.text(name)
        is_number = text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX
        if not is_number or not least <= int(text) <= most:
            limits = f"from {least} on" if most >= INT32_MAX else f"from {least} to {most}"
            raise OptionError(name, f"is a number {limits}, but {text!r} was given")
        return int(text)

    def optional_number(self, name: str, least: int = 1) -> int | None:
        """Read a whole number that has no default."""
        return self.number(name, least) if self.is_given(name) else None

    def words(self, name: str) -> tuple[str, ...]:
        """Read words with commas between, each once and in order; none where the option is not given."""
        if not self.is_given(name):
            return ()
        words = tuple(sorted({word.strip() for word in self.text(name).split(",")} - {""}))
        if not words:
            raise OptionError(name, f"names nothing: {self.text(name)!r} was given")
        return words

    def pattern(self, name: str) -> str:
        """Read a regular expression; empty where the option is not given."""
        if not self.is_given(name):
            return ""
        text = self.text(name)
        if not text:
            raise OptionError(name, "is an empty regular expression, which no topic matches")
        try:
            re.compile(text)
        except re.error as error:
            raise OptionError(name, f"is {text!r}, which is no regular expression: {error}") from None
        return text

    def only_one(self, names: Sequence[str]) -> str | None:
        """Return which of these is given, or None; raises OptionError when several are."""
        found = [name for name in names if self.is_given(name)]
        if len(found) > 1:
            raise OptionError(found[1], f"says what to read, but so does '{found[0]}': only one of them can be given")
        return found[0] if found else None
