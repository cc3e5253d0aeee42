"""The report of a long run: one HTML page with a chart of each series, what was done, and what was found.

Rule 1: no script, no font, no image, no address: it can be mailed, kept and opened years later.
Rule 2: it follows the reader's choice of light or dark, and every chart has its figures beside it.
Rule 3: whatever is shown goes through `escape`.
"""

from collections.abc import Mapping, Sequence
from html import escape

from checker.care.samples import SERIES, Level, Sample, Series
from checker.model import Finding

HEIGHT = 100
WIDTH = 1000
GRID_LINES = 4

STYLE = """
:root{--ground:#f6f7f9;--card:#fff;--ink:#1c2430;--soft:#5d6b7e;--line:#dde2ea;--bar:#2f6fde;--mark:#b4540a;
color-scheme:light dark}
@media (prefers-color-scheme:dark){:root{--ground:#12161c;--card:#1a2029;--ink:#e6eaf0;--soft:#97a3b4;--line:#2c3542;
--bar:#6ea2ff;--mark:#f0a35e}}
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif;
font-variant-numeric:tabular-nums}
main{max-width:68rem;margin:0 auto;padding:2rem 1rem 4rem}
h1{font-size:1.7rem;line-height:1.2;margin:0}h2{font-size:1.05rem;margin:0 0 .8rem}
header p,.note{color:var(--soft);margin:.3rem 0 0;font-size:.9rem}
section{background:var(--card);border:1px solid var(--line);border-radius:.7rem;padding:1.1rem 1.2rem;margin-top:1rem}
.chart{display:grid;grid-template-columns:4rem 1fr;column-gap:.6rem;font-size:.78rem;color:var(--soft)}
.chart svg{width:100%;height:9rem;display:block;overflow:visible}
.upwards{display:flex;flex-direction:column;justify-content:space-between;text-align:right;height:9rem}
.upwards span{line-height:0}
.below{grid-column:2;display:flex;justify-content:space-between;margin-top:.5rem}
.grid{stroke:var(--line);stroke-width:1;vector-effect:non-scaling-stroke}
.fault{stroke:var(--mark);stroke-width:1;stroke-dasharray:2 3;vector-effect:non-scaling-stroke}
.value{fill:none;stroke:var(--bar);stroke-width:1.6;vector-effect:non-scaling-stroke}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:.88rem}
th,td{padding:.3rem .6rem;text-align:right;border-bottom:1px solid var(--line);font-weight:400}
th{text-align:left}.bad{color:var(--mark);font-weight:600}
"""


def page(
    title: str,
    samples: Sequence[Sample],
    faults: Sequence[tuple[float, str]],
    levels: Sequence[Level],
    counts: Mapping[str, int],
    findings: Sequence[Finding],
) -> str:
    """Return the page. Faults are when, in seconds, and what."""
    charts = "\n".join(_section(series, samples, faults, levels) for series in SERIES)
    lives = len({sample.life for sample in samples})
    span = f"{samples[-1].at_s - samples[0].at_s:.0f} s, {lives} lives" if samples else "no sample was taken"
    done = _table(("what was done", "how often"), [(name, f"{count:,}") for name, count in sorted(counts.items())])
    told = "".join(f'<p class="bad">{escape(finding.kind)}: {escape(finding.sentence)}</p>' for finding in findings)
    verdict = told or "<p>Nothing was found: every check passed, and everything stayed level.</p>"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<header><h1>{escape(title)}</h1><p>{escape(span)}; dashed lines are faults and restarts.</p></header>\n"
        f"<section><h2>Findings</h2>{verdict}</section>\n{charts}\n<section><h2>Load</h2>{done}</section>\n"
        "</main>\n</body>\n</html>\n"
    )


def _section(
    series: Series, samples: Sequence[Sample], faults: Sequence[tuple[float, str]], levels: Sequence[Level]
) -> str:
    judged = [level for level in levels if level.series is series]
    rows = [
        (
            level.whose,
            f"{level.early:.1f}",
            f"{level.late:.1f}",
            f"{series.limit(level.early):.1f}",
            "level" if level.is_level else "grew",
        )
        for level in judged
    ]
    table = _table(("median of", "second quarter", "last quarter", "limit", ""), rows) if rows else ""
    note = "" if rows else '<p class="note">Too few samples to be judged.</p>'
    unit = f", {series.unit}" if series.unit else ""
    heading = f"<h2>{escape(series.title + unit)}</h2>"
    return f"<section>{heading}{_chart(series, samples, faults)}{table}{note}</section>"


def _chart(series: Series, samples: Sequence[Sample], faults: Sequence[tuple[float, str]]) -> str:
    if not samples:
        return ""
    first, last = samples[0].at_s, max(samples[-1].at_s, samples[0].at_s + 1)
    top = max(1.0, 1.1 * max(series.of(sample) for sample in samples))

    def x(at_s: float) -> float:
        return WIDTH * (at_s - first) / (last - first)

    shapes = []
    for line in range(GRID_LINES + 1):
        y = HEIGHT * line / GRID_LINES
        shapes.append(f'<line class="grid" x1="0" x2="{WIDTH}" y1="{y:g}" y2="{y:g}"/>')
    for at_s, what in faults:
        if first <= at_s <= last:
            said = f"<title>{escape(f'{what} at {at_s:.0f} s')}</title>"
            shapes.append(
                f'<line class="fault" x1="{x(at_s):.1f}" x2="{x(at_s):.1f}" y1="0" y2="{HEIGHT}">{said}</line>'
            )
    for life in sorted({sample.life for sample in samples}):
        points = " ".join(
            f"{x(sample.at_s):.1f},{HEIGHT - HEIGHT * series.of(sample) / top:.2f}"
            for sample in samples
            if sample.life == life
        )
        shapes.append(f'<polyline class="value" points="{points}"/>')
    upwards = "".join(f"<span>{top * (GRID_LINES - line) / GRID_LINES:.0f}</span>" for line in range(GRID_LINES + 1))
    below = "".join(f"<span>{first + (last - first) * part / 4:.0f} s</span>" for part in range(5))
    return (
        f'<div class="chart"><div class="upwards" aria-hidden="true">{upwards}</div>'
        f'<svg role="img" aria-label="{escape(series.title)} over time" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'preserveAspectRatio="none">{"".join(shapes)}</svg>'
        f'<div class="below" aria-hidden="true">{below}</div></div>'
    )


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(each)}</th>' for each in headings)
    lines = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>{"".join(f"<td>{escape(field)}</td>" for field in row[1:])}</tr>'
        for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>'
