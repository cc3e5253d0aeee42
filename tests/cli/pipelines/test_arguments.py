"""Arguments that several jobs take."""

import argparse

import pytest

from barnabas.cli.pipelines.arguments import add_options, name_and_value, place


def test_options_are_names_and_values() -> None:
    parser = argparse.ArgumentParser()
    add_options(parser)
    assert dict(parser.parse_args(["--option", "a=b=c", "--option", "d="]).option) == {"a": "b=c", "d": ""}
    with pytest.raises(argparse.ArgumentTypeError, match="NAME=VALUE"):
        name_and_value("nothing")


def test_places_are_those_of_consume_and_json() -> None:
    assert [place(text) for text in ("earliest", "latest", "12", "@5", '{"0": 1}')] == [
        "earliest",
        "latest",
        "12",
        "@5",
        '{"0": 1}',
    ]
    assert place("1970-01-01T00:00:01") == "@1000"
    assert place("1h").startswith("@1")
    with pytest.raises(argparse.ArgumentTypeError):
        place("soon")
