"""The command `barnabas`: one parser, and one module a subcommand, imported when it is asked for."""

import argparse
import importlib
import io
import os
import sys
from collections.abc import Sequence
from typing import Any

# Every subcommand, with the sentence that `barnabas --help` shows. The module `barnabas.cli.<name>` has
# `configure(parser)` and `run(arguments) -> exit code`.
COMMANDS = {
    "serve": "run a broker",
    "status": "show what a broker is doing, how its disks are and how far recovery is",
    "topics": "list, create, describe, change and delete topics",
    "produce": "write lines or JSON objects from stdin to a topic",
    "consume": "print the records of a topic",
    "groups": "list, describe, reset and delete consumer groups",
    "transactions": "list, describe and abort transactions",
    "pipeline": "move, keep and check whole topics with Spark",
    "dump": "show what is in a segment, an index, a snapshot or a checkpoint",
    "verify": "check every batch, index and checkpoint of log directories",
}

DESCRIPTION = """\
A log broker in Python that every Kafka client speaks to, and that writes Kafka's own files: the broker, what is needed
to try it, and the tools that look into log directories, its own and Kafka's."""
EXAMPLES = """\
examples:
  barnabas serve --data data
  barnabas status --json
  barnabas topics create orders --partitions 3
  barnabas produce orders < lines.txt
  barnabas consume orders --from earliest
  barnabas groups describe billing
  barnabas transactions list --older-than 10m
  barnabas pipeline archive orders lake/orders
  barnabas dump data/orders-0/00000000000000000000.log
  barnabas verify data
"""


class _ShowVersion(argparse.Action):
    """Prints the version of the installed package, which is looked for only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from importlib.metadata import version  # It takes longer to import than everything else here.

        print(f"barnabas {version('barnabas')}")
        parser.exit()


def main(words: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = list(sys.argv[1:] if words is None else words)
    parser = argparse.ArgumentParser(
        prog="barnabas",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_ShowVersion, nargs=0, help="show the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, sentence in COMMANDS.items():
        command = commands.add_parser(name, help=sentence, formatter_class=argparse.RawDescriptionHelpFormatter)
        if name in words[:1]:
            importlib.import_module(f"barnabas.cli.{name}").configure(command)
    arguments = parser.parse_args(words)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # What can not be shown in the terminal's encoding is shown as an escape, instead of ending the command.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        exit_code = int(importlib.import_module(f"barnabas.cli.{arguments.command}").run(arguments))
        print(end="", flush=True)  # An error of the output is to be met here.
        return exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read our output has seen enough.
        _drop_output()
        return 0
    except OSError as error:
        _drop_output()
        print(f"barnabas {arguments.command}: {error}", file=sys.stderr)
        return 1


def _drop_output() -> None:
    """Let what is still buffered go nowhere, because the interpreter would fail once more when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
