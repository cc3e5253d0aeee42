"""Rows in a terminal and in a pipe."""

import io

import pytest

from barnabas.cli.tables import print_json, print_rows


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_columns_under_a_heading() -> None:
    stream = Terminal()
    print_rows(("topic", "n"), [("orders", 3), ("a", None)], stream)
    assert stream.getvalue() == "TOPIC   N\norders  3\na       -\n"


def test_a_pipe_gets_tabs_and_no_heading() -> None:
    stream = io.StringIO()
    print_rows(("topic", "n", "x"), [("orders", 3, ""), ("a", None, 0)], stream)
    assert stream.getvalue() == "orders\t3\t-\na\t-\t0\n"


def test_no_rows_are_a_heading_or_nothing() -> None:
    terminal, pipe = Terminal(), io.StringIO()
    print_rows(("topic",), [], terminal)
    print_rows(("topic",), [], pipe)
    assert (terminal.getvalue(), pipe.getvalue()) == ("TOPIC\n", "")


def test_a_field_stays_one_whatever_is_in_it() -> None:
    stream = io.StringIO()
    print_rows(("a", "b"), [("tab\there", "\x1b[31mred\n"), ("größe", "a b")], stream)
    assert stream.getvalue() == "tab\\there\t\\x1b[31mred\\n\ngröße\ta b\n"


def test_json_is_one_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_json([{"a": 1}, {"b": None}])
    assert capsys.readouterr().out == '{"a": 1}\n{"b": null}\n'
