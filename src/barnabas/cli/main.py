"""The command `barnabas`: one parser, and one module a subcommand, imported when it is asked for."""

import argparse
import importlib
import io
import os
import sys
from collections.abc import Sequence

# Every subcommand, with the sentence that `barnabas --help` shows. The module `barnabas.cli.<name>` has
# `configure(parser)` and `run(arguments) -> exit code`.
COMMANDS = {
    "dump": "show what is in a segment, an index, a snapshot or a checkpoint",
    "verify": "check every batch, index and checkpoint of log directories",
}

EXAMPLES = """\
examples:
  barnabas dump data/orders-0/00000000000000000000.log
  barnabas verify data
"""


def main(words: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = list(sys.argv[1:] if words is None else words)
    parser = argparse.ArgumentParser(
        prog="barnabas",
        description="A log broker that every Kafka client already speaks to.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
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
