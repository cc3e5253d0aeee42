"""Rows for people and for programs: aligned under a heading in a terminal, with tabs between when piped."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO

GAP = "  "
NOTHING = "-"
"""What stands in the place of a field that has no value, so that columns stay columns."""


def print_rows(headings: Sequence[str], rows: Iterable[Sequence[object]], stream: TextIO | None = None) -> None:
    """Print rows; a program gets no heading, and numbers and words as they are."""
    stream = sys.stdout if stream is None else stream
    texts = [[_text(field) for field in row] for row in rows]
    if not stream.isatty():
        for row in texts:
            print("\t".join(row), file=stream)
        return
    lines = [[heading.upper() for heading in headings], *texts]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    for line in lines:
        padded = (field.ljust(width) for field, width in zip(line, widths, strict=True))
        print(GAP.join(padded).rstrip(), file=stream)


def print_json(rows: Iterable[Mapping[str, Any]]) -> None:
    """Print one JSON object a line."""
    for row in rows:
        print(json.dumps(row))


def _text(field: object) -> str:
    """Return a field so that it stays one: names may come from clients, and have tabs or worse in them."""
    text = NOTHING if field in (None, "") else str(field)
    return text if text.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
