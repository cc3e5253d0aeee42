"""The page of a profile: one HTML file with its style and its charts inside, and nothing from anywhere else.

    headline figures, what stands out, over time, partitions, sizes, keys, settings

Rule 1: no script, no font, no image, no address: it can be mailed, kept and opened years later.
Rule 2: it follows the reader's choice of light or dark, and fits a phone. Every chart has its numbers as a table.
Rule 3: names and keys come from whoever writes to the topic, and are escaped without exception.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from barnabas.spark.jobs.charts import Column, column_chart, folded, share_bar, table
from barnabas.spark.jobs.profile_result import ProfileFigures, SizeFigures
from barnabas.spark.jobs.quantities import count_text, moment_text, nice_top, share_text, size_text, span_text

_TICKS = 4

STYLE = """
:root{--ground:#f6f7f9;--card:#fff;--ink:#1c2430;--soft:#5d6b7e;--line:#dde2ea;--bar:#2f6fde;--over:#1b4fae;
--mark:#b4540a;color-scheme:light dark}
@media (prefers-color-scheme:dark){:root{--ground:#12161c;--card:#1a2029;--ink:#e6eaf0;--soft:#97a3b4;--line:#2c3542;
--bar:#6ea2ff;--over:#a9c8ff;--mark:#f0a35e}}
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--ink);font-variant-numeric:tabular-nums;
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:68rem;margin:0 auto;padding:2rem 1rem 4rem}
header p{color:var(--soft);margin:.2rem 0 0}
h1{font-size:1.7rem;line-height:1.2;margin:0;overflow-wrap:anywhere}
h2{font-size:1.05rem;margin:0 0 .8rem}
h3{font-size:.9rem;margin:0 0 .5rem;color:var(--soft);font-weight:600}
section{background:var(--card);border:1px solid var(--line);border-radius:.7rem;padding:1.1rem 1.2rem;margin-top:1rem}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(9.5rem,1fr));gap:.8rem;margin:1.4rem 0 0;padding:0}
.tiles div{background:var(--card);border:1px solid var(--line);border-radius:.7rem;padding:.8rem 1rem}
.tiles dt{color:var(--soft);font-size:.82rem}
.tiles dd{margin:0;font-size:1.5rem;font-weight:650;line-height:1.25}
.tiles dd small{display:block;font-size:.8rem;font-weight:400;color:var(--soft)}
.two{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,22rem),1fr));gap:1.6rem}
.two>div{min-width:0}
.chart{display:grid;grid-template-columns:auto 1fr;column-gap:.6rem;font-size:.78rem;color:var(--soft)}
.chart svg{width:100%;height:11rem;display:block;overflow:visible}
.upwards{display:flex;flex-direction:column;justify-content:space-between;text-align:right;height:11rem}
.upwards span{line-height:0}
.below{grid-column:2;display:flex;justify-content:space-between;gap:.5rem;margin-top:.5rem}
.grid{stroke:var(--line);stroke-width:1;vector-effect:non-scaling-stroke}
.bar{fill:var(--bar)}.reach{fill:transparent}
.column:hover .bar{fill:var(--over)}
.share{width:100%;height:.7rem;display:block;background:var(--line);border-radius:.2rem}
details{margin-top:.8rem;font-size:.88rem}
summary{cursor:pointer;color:var(--soft)}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.88rem}
th,td{padding:.3rem .6rem;text-align:right;border-bottom:1px solid var(--line);font-weight:400;white-space:nowrap}
thead th{color:var(--soft);font-size:.8rem}
tbody th{text-align:left;white-space:normal;overflow-wrap:anywhere;min-width:5rem}
thead th:first-child{text-align:left}
.bars{width:38%;min-width:6rem}
.note{color:var(--soft);font-size:.88rem;margin:.7rem 0 0}
ul{margin:0;padding-left:1.1rem}
li::marker{color:var(--mark)}
@media print{section{break-inside:avoid}}
"""


def page(seen: ProfileFigures) -> str:
    """Return the page."""
    sections = [_notes(seen), _over_time(seen), _partitions(seen), _sizes(seen), _keys(seen), _settings(seen)]
    title = f"Topic {seen.topic}"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<header><h1>{escape(title)}</h1><p>{escape(_span(seen))}</p></header>\n{_tiles(seen)}\n"
        + "\n".join(section for section in sections if section)
        + "\n</main>\n</body>\n</html>\n"
    )


def _span(seen: ProfileFigures) -> str:
    if not seen.records:
        return "There is no record in it."
    first, last = moment_text(seen.first_timestamp_ms), moment_text(seen.last_timestamp_ms)
    return f"{first} to {last} UTC, {span_text(seen.last_timestamp_ms - seen.first_timestamp_ms)}"


def _tiles(seen: ProfileFigures) -> str:
    about = "" if seen.distinct_keys_are_exact else "about "
    average = seen.size_bytes / max(seen.records, 1)
    peak = f"{count_text(round(seen.peak_records_per_second, 1))} at the peak, over {span_text(seen.peak_interval_ms)}"
    tiles = [
        ("Records", count_text(seen.records), f"{seen.records:,}"),
        ("Bytes", size_text(seen.size_bytes), f"{size_text(average)} a record on average"),
        ("Different keys", f"{about}{count_text(seen.distinct_keys)}", f"{_counted(seen.records_without_key)} without"),
        ("Tombstones", count_text(seen.tombstones), f"{share_text(seen.tombstones, seen.records)} of the records"),
        ("Records a second", count_text(round(seen.records_per_second, 1)), peak),
        ("Partitions", str(len(seen.partitions)), f"the largest has {seen.skew:.2f} times the average"),
    ]
    boxes = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}<small>{escape(more)}</small></dd></div>"
        for name, value, more in tiles
    )
    return f'<dl class="tiles">{boxes}</dl>'


def _counted(count: int) -> str:
    return f"{count:,} record{'' if count == 1 else 's'}"


def notes(seen: ProfileFigures) -> list[str]:
    """Return what a reader should not overlook, in sentences."""
    found = []
    empty = [each.partition for each in seen.partitions if not each.records]
    if empty and seen.records:
        found.append(f"{len(empty)} of {len(seen.partitions)} partitions have no record.")
    if seen.skew >= 1.5 and len(seen.partitions) > 1:
        largest = max(seen.partitions, key=lambda each: each.records)
        share = share_text(largest.records, seen.records)
        found.append(f"Partition {largest.partition} has {share} of all records: the load is uneven.")
    if seen.top_keys and seen.top_keys[0].records >= 0.1 * seen.records and seen.distinct_keys > 10:
        share = share_text(seen.top_keys[0].records, seen.records)
        found.append(f"One key alone has {share} of all records, and all of them are in the same partition.")
    if seen.out_of_order:
        share = share_text(seen.out_of_order, seen.records)
        found.append(
            f"{_counted(seen.out_of_order)} ({share}) have an earlier timestamp than the one before in their partition."
        )
    if seen.records_outside_times:
        words = "has a timestamp" if seen.records_outside_times == 1 else "have timestamps"
        found.append(f"{_counted(seen.records_outside_times)} {words} far from all others, and not in the charts.")
    holes = sum(each.offsets_without_record for each in seen.partitions)
    if holes:
        found.append(f"{holes:,} offsets have no record: markers of transactions, aborted records, or compacted ones.")
    if "compact" in seen.settings.get("cleanup.policy", "") and seen.records_without_key:
        found.append("The topic is compacted, but has records without a key.")
    return found


def _notes(seen: ProfileFigures) -> str:
    found = notes(seen)
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in found)
    return f"<section><h2>What stands out</h2><ul>{items}</ul></section>" if found else ""


def _over_time(seen: ProfileFigures) -> str:
    if not seen.times:
        return ""
    interval = span_text(seen.interval_ms)
    moments = [moment_text(each.timestamp_ms, seen.interval_ms) for each in seen.times]
    axis = list(dict.fromkeys([moments[0], *([moments[len(moments) // 2]] if len(moments) > 4 else []), moments[-1]]))
    charts = []
    for name, values, text in (
        ("Records", [each.records for each in seen.times], _counted),
        ("Bytes", [each.size_bytes for each in seen.times], size_text),
    ):
        columns = [
            Column(label=moment, value=value, text=text(value)) for moment, value in zip(moments, values, strict=True)
        ]
        is_size = name == "Bytes"
        chart = _scaled_chart(f"{name} in every {interval}", columns, axis, is_size=is_size)
        charts.append(f"<div><h3>{name} in every {escape(interval)}</h3>{chart}</div>")
    rows = [
        (moment, f"{each.records:,}", f"{each.size_bytes:,}") for moment, each in zip(moments, seen.times, strict=True)
    ]
    numbers = folded("The numbers as a table", table(("From (UTC)", "Records", "Bytes"), rows))
    return f'<section><h2>Over time</h2><div class="two">{"".join(charts)}</div>{numbers}</section>'


def _scaled_chart(title: str, columns: Sequence[Column], axis: Sequence[str], *, is_size: bool) -> str:
    """Return a chart whose top is a round number."""
    top = nice_top(max(column.value for column in columns), 1024 if is_size else 1000)
    words = size_text if is_size else count_text
    ticks = [words(top * step / _TICKS) for step in range(_TICKS + 1)]
    return column_chart(title, columns, axis, ticks, top=top)


def _partitions(seen: ProfileFigures) -> str:
    if not seen.partitions:
        return ""
    top = max(each.records for each in seen.partitions)
    rows = [
        (
            str(each.partition),
            f"{each.records:,}",
            share_text(each.records, seen.records),
            size_text(each.size_bytes),
            f"{each.start_offset:,} to {each.end_offset:,}",
            f"{each.out_of_order:,}",
        )
        for each in seen.partitions
    ]
    headings = ("Partition", "Records", "Share", "Bytes", "Offsets", "Out of order")
    bars = [share_bar(each.records, top) for each in seen.partitions]
    return f"<section><h2>Partitions</h2>{table(headings, rows, bars=bars)}</section>"


def _sizes(seen: ProfileFigures) -> str:
    parts = [_size_chart("Values", seen.value_sizes), _size_chart("Keys", seen.key_sizes)]
    if not any(parts):
        return ""
    split = (
        f"Of all bytes, {share_text(seen.key_bytes, seen.size_bytes)} are keys, "
        f"{share_text(seen.value_bytes, seen.size_bytes)} values and "
        f"{share_text(seen.header_bytes, seen.size_bytes)} headers, before compression."
    )
    note = f'<p class="note">{escape(split)}</p>'
    return f'<section><h2>Sizes</h2><div class="two">{"".join(parts)}</div>{note}</section>'


def _size_chart(name: str, sizes: SizeFigures) -> str:
    if not sizes.records:
        return ""
    labels = [_bin_text(each.smallest, each.largest) for each in sizes.bins]
    columns = [
        Column(label=label, value=each.records, text=_counted(each.records))
        for label, each in zip(labels, sizes.bins, strict=True)
    ]
    axis = list(dict.fromkeys([labels[0], labels[-1]]))
    chart = _scaled_chart(f"{name} by size", columns, axis, is_size=False)
    ranks = (
        f"half of them up to {size_text(sizes.p50)}, 90 % up to {size_text(sizes.p90)}, 99 % up to "
        f"{size_text(sizes.p99)}; average {size_text(round(sizes.average, 1))}, smallest {size_text(sizes.smallest)}, "
        f"largest {size_text(sizes.largest)}"
    )
    rows = [(label, f"{each.records:,}") for label, each in zip(labels, sizes.bins, strict=True)]
    numbers = folded("The numbers as a table", table(("Size", "Records"), rows))
    return f'<div><h3>{name}</h3>{chart}<p class="note">{escape(ranks)}</p>{numbers}</div>'


def _bin_text(smallest: int, largest: int) -> str:
    if smallest >= largest:
        return size_text(largest)
    return f"{size_text(smallest)} to {size_text(largest + 1)}" if smallest >= 1024 else f"{smallest} to {largest} B"


def _keys(seen: ProfileFigures) -> str:
    if not seen.top_keys:
        return ""
    top = seen.top_keys[0].records
    at_least = "at least " if seen.top_keys_error else ""
    rows = [
        (
            f"0x{each.key}" if each.is_hexadecimal else each.key or "(empty)",
            f"{at_least}{each.records:,}",
            share_text(each.records, seen.records),
        )
        for each in seen.top_keys
    ]
    bars = [share_bar(each.records, top) for each in seen.top_keys]
    note = ""
    if seen.top_keys_error:
        said = f"There are very many keys: each of these counts may be too small by up to {seen.top_keys_error:,}."
        note = f'<p class="note">{escape(said)}</p>'
    keys = table(("Key", "Records", "Share"), rows, bars=bars)
    return f"<section><h2>Most frequent keys</h2>{keys}{note}</section>"


def _settings(seen: ProfileFigures) -> str:
    if not seen.settings:
        return ""
    rows = [(name, _setting_text(name, value)) for name, value in seen.settings.items()]
    return f"<section><h2>How the topic is kept</h2>{table(('Setting', 'Value'), rows)}</section>"


def _setting_text(name: str, value: str) -> str:
    if value == "-1":
        return "no limit"
    if name.endswith((".ms", ".bytes")) and value.isdecimal():
        return f"{value} ({span_text(int(value)) if name.endswith('.ms') else size_text(int(value))})"
    return value
