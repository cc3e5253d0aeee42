"""Charts: shapes where they belong, and everything escaped."""

import xml.etree.ElementTree as ElementTree

from barnabas.spark.jobs.charts import Column, column_chart, column_height, folded, share_bar, table

COLUMNS = [
    Column(label="<a>", value=5, text='"5"'),
    Column(label="b", value=0, text="0"),
    Column(label="c", value=10, text="10"),
]


def test_columns_are_as_high_as_their_values() -> None:
    chart = column_chart("A & B", COLUMNS, ["<a>", "c"], ["0", "10"], top=20)
    tree = ElementTree.fromstring(chart)
    svg = tree.find("svg")
    assert svg is not None
    assert (svg.get("role"), svg.get("aria-label"), svg.get("viewBox")) == ("img", "A & B", "0 0 3 100")
    bars = [
        (float(rect.get("y", "")), float(rect.get("height", "")))
        for rect in svg.iter("rect")
        if rect.get("class") == "bar"
    ]
    assert bars == [(75, 25), (100, 0), (50, 50)]
    assert [title.text for title in svg.iter("title")] == ["A & B", '<a>: "5"', "b: 0", "c: 10"]
    assert [span.text for span in tree.iter("span")] == ["10", "0", "<a>", "c"]


def test_what_is_small_is_seen_and_what_is_nothing_is_not() -> None:
    assert (column_height(1, 10**9), column_height(0, 5), column_height(5, 0), column_height(5, 5)) == (1, 0, 0, 100)


def test_a_table_has_headings_and_bars() -> None:
    rows = [("<k>", "1"), ("b", "2")]
    tree = ElementTree.fromstring(table(("Key", "Records"), rows, bars=[share_bar(1, 2), share_bar(2, 2)]))
    assert [head.text for head in tree.iter("th")] == ["Key", None, "Records", "<k>", "b"]
    assert [rect.get("width") for rect in tree.iter("rect")] == ["50.00", "100.00"]
    assert all(len(row) == 3 for row in tree.iter("tr"))
    assert share_bar(1, 0).count('width="0.00"') == 1
    assert folded("a<b", "<p/>") == "<details><summary>a&lt;b</summary><p/></details>"
