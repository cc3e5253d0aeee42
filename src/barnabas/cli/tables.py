"""Rows for people and for programs: aligned under a heading in a terminal, with tabs between when piped."""

import sys
from collections.abc import Iterable, Sequence
from typing import TextIO

GAP = "  "
NOTHING = "-"
"""What stands in the place of a field that has no value, so that columns stay columns."""


def print_rows(headings: Sequence[str], rows: Iterable[Sequence[object]], stream: TextIO | None = None) -> None:
    """Print rows; a program gets no heading, and numbers and words as they are."""
    stream = sys.stdout if stream is None else stream
    texts = [[NOTHING if field in (None, "") else str(field) for field in row] for row in rows]
    if not stream.isatty():
        for row in texts:
            print("\t".join(row), file=stream)
        return
    lines = [[heading.upper() for heading in headings], *texts]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    for line in lines:
        padded = (field.ljust(width) for field, width in zip(line, widths, strict=True))
        print(GAP.join(padded).rstrip(), file=stream)
