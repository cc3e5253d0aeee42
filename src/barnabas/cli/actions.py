"""A command with actions, like `barnabas topics list`: what each of them declares, and how it is done."""

import argparse
from collections.abc import Callable
from typing import TypeAlias

from barnabas.cli.connecting import add_bootstrap_server, with_client
from barnabas.client.client import Client

Act: TypeAlias = Callable[[Client, argparse.Namespace], int]
"""Does an action against a broker, and returns the exit code."""


class Actions:
    """The actions of one command; each prints one `noun` a line."""

    def __init__(self, parser: argparse.ArgumentParser, command: str, noun: str) -> None:
        self._command = command
        self._noun = noun
        self._parsers = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def add(self, name: str, sentence: str, example: str, act: Act) -> argparse.ArgumentParser:
        """Declare an action, with the options that all of them have; `example` is what comes after its name."""
        parser: argparse.ArgumentParser = self._parsers.add_parser(
            name,
            help=sentence,
            description=f"{sentence[0].upper()}{sentence[1:]}.",
            epilog=f"example:\n  barnabas {self._command} {name} {example}".rstrip() + "\n",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        parser.set_defaults(act=act)
        add_bootstrap_server(parser)
        parser.add_argument("--json", action="store_true", help=f"print one JSON object a {self._noun}, one a line")
        return parser


def run_action(command: str, arguments: argparse.Namespace) -> int:
    """Do the action that was asked for, against a broker."""
    return with_client(command, arguments, lambda client: int(arguments.act(client, arguments)))
