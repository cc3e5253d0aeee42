"""Arguments that several jobs take."""

import argparse

from barnabas.cli.times import parse_start
from barnabas.client.offsets import EARLIEST
from barnabas.clock import SystemClock


def add_options(parser: argparse.ArgumentParser, flag: str = "--option", what: str = "the connector") -> None:
    """Declare further options of a source or sink."""
    parser.add_argument(
        flag,
        action="append",
        default=[],
        type=name_and_value,
        metavar="NAME=VALUE",
        help=f"a further option of {what}; repeatable",
    )


def name_and_value(text: str) -> tuple[str, str]:
    """Read NAME=VALUE, for argparse."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"an option is NAME=VALUE, but {text!r} was given")
    return name, value


def place(text: str) -> str:
    """Read a place in a topic, for argparse: what `consume` takes, and offsets as JSON."""
    if text.lstrip().startswith("{"):
        return text
    start = parse_start(text)
    if start.offset is not None:
        return str(start.offset)
    timestamp = start.timestamp_at(SystemClock().now_ms())
    if timestamp < 0:
        return "earliest" if timestamp == EARLIEST else "latest"
    return f"@{timestamp}"
