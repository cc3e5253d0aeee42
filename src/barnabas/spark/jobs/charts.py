"""Charts as SVG inside a page, with what belongs to them: axes in the page's own text, and the numbers as a table.

The SVG has only shapes and is stretched to the width that there is; labels are HTML around it, so that they keep their
size on a phone. Colours are those of the page's style sheet, for light and for dark.

Rule 1: everything that is shown goes through `escape`, whoever it comes from.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_HEIGHT = 100
_GRID_LINES = 4
# A column takes so much of its place, unless there are so many that the gaps would be all one sees.
_COLUMN_WIDTH = 0.86
_GAPS_UP_TO = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column: what it stands for, how high it is, and its value in words."""

    label: str
    value: int
    text: str


def column_chart(title: str, columns: Sequence[Column], axis: Sequence[str], ticks: Sequence[str], *, top: int) -> str:
    """Return a chart of columns.

    Args:
        title: What it shows, in words.
        columns: From left to right.
        axis: What stands below, from left to right.
        ticks: What stands at the left: nothing, and then upwards to the top of the chart.
        top: The value at the top of the chart.
    """
    width = _COLUMN_WIDTH if len(columns) <= _GAPS_UP_TO else 1.0
    shapes = []
    for line in range(_GRID_LINES + 1):
        y = _HEIGHT * line / _GRID_LINES
        shapes.append(f'<line class="grid" x1="0" x2="{len(columns)}" y1="{y:g}" y2="{y:g}"/>')
    for place, column in enumerate(columns):
        height = column_height(column.value, top)
        said = f"{escape(column.label)}: {escape(column.text)}"
        # The area above a low column answers to the pointer too.
        shapes.append(
            f'<g class="column"><title>{said}</title><rect class="reach" x="{place}" y="0" width="1" '
            f'height="{_HEIGHT}"/><rect class="bar" x="{place + (1 - width) / 2:.3f}" y="{_HEIGHT - height:.2f}" '
            f'width="{width:g}" height="{height:.2f}"/></g>'
        )
    upwards = "".join(f"<span>{escape(tick)}</span>" for tick in reversed(ticks))
    below = "".join(f"<span>{escape(word)}</span>" for word in axis)
    return (
        f'<div class="chart"><div class="upwards" aria-hidden="true">{upwards}</div>'
        f'<svg role="img" aria-label="{escape(title)}" viewBox="0 0 {max(len(columns), 1)} {_HEIGHT}" '
        f'preserveAspectRatio="none"><title>{escape(title)}</title>{"".join(shapes)}</svg>'
        f'<div class="below" aria-hidden="true">{below}</div></div>'
    )


def column_height(value: int, top: int) -> float:
    """Return how high a column is, of 100; a value that is not 0 is always seen."""
    if value <= 0 or top <= 0:
        return 0.0
    return max(1.0, _HEIGHT * value / top)


def share_bar(value: int, top: int) -> str:
    """Return a bar for a row of a table, as long as the value's share of the largest one."""
    share = 100 * value / top if top > 0 else 0
    return (
        '<svg class="share" aria-hidden="true" viewBox="0 0 100 10" preserveAspectRatio="none">'
        f'<rect class="bar" width="{share:.2f}" height="10"/></svg>'
    )


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, bars: Sequence[str] = ()) -> str:
    """Return a table, whose first column is in words and whose others are numbers; `bars` are one more, as they are."""
    head = "".join(f'<th scope="col">{escape(each)}</th>' for each in headings)
    lines = []
    for place, row in enumerate(rows):
        bar = f'<td class="bars">{bars[place]}</td>' if bars else ""
        fields = "".join(f"<td>{escape(field)}</td>" for field in row[1:])
        lines.append(f'<tr><th scope="row">{escape(row[0])}</th>{bar}{fields}</tr>')
    if bars:
        head = head.replace("</th>", '</th><th aria-hidden="true"></th>', 1)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'


def folded(summary: str, content: str) -> str:
    """Return something that is shown when it is asked for."""
    return f"<details><summary>{escape(summary)}</summary>{content}</details>"
