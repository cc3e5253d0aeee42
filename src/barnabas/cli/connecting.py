"""What every command that talks to a broker shares: where the broker is, and one line on stderr for what went wrong."""

import argparse
import os
import sys
from collections.abc import Callable

from barnabas.client.client import Client
from barnabas.client.connection import ClientError, ConnectionFailedError
from barnabas.client.options import ClientOptions, parse_bootstrap_servers
from barnabas.records.batch import CorruptRecordError
from barnabas.wire.errors import ApiError

BOOTSTRAP_SERVERS_VARIABLE = "BARNABAS_BOOTSTRAP_SERVERS"
BOOTSTRAP_SERVER_DEFAULT = "127.0.0.1:9092"

# A person waits at the other end: shorter than what programs are patient for.
OPTIONS = ClientOptions(client_id="barnabas-cli", default_api_timeout_ms=30_000)


def add_bootstrap_server(parser: argparse.ArgumentParser) -> None:
    """Declare the option that says where the broker is."""
    parser.add_argument(
        "--bootstrap-server",
        metavar="HOST:PORT",
        type=_bootstrap_servers,
        default=os.environ.get(BOOTSTRAP_SERVERS_VARIABLE) or BOOTSTRAP_SERVER_DEFAULT,
        help=f"a broker of the cluster, or several with commas between (default: ${BOOTSTRAP_SERVERS_VARIABLE}, or "
        f"{BOOTSTRAP_SERVER_DEFAULT})",
    )


def _bootstrap_servers(text: str) -> str:
    try:
        parse_bootstrap_servers(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def with_client(command: str, arguments: argparse.Namespace, act: Callable[[Client], int]) -> int:
    """Do something with a client, and tell in one line what went wrong; the exit code is 1 then."""
    try:
        with Client(arguments.bootstrap_server, OPTIONS) as client:
            return act(client)
    except ConnectionFailedError as error:
        complain(command, f"no broker answers at {error} (`barnabas serve` starts one)")
    except (ClientError, ApiError, CorruptRecordError) as error:
        complain(command, str(error))
    return 1


def complain(command: str, sentence: str) -> None:
    """Print one line on stderr, behind what stdout has so far."""
    sys.stdout.flush()
    # Brokers may answer with several lines.
    print(f"barnabas {command}: {' '.join(sentence.split())}", file=sys.stderr, flush=True)


def positive(text: str) -> int:
    """Read a number from 1 on, for argparse."""
    if not (text.isascii() and text.isdecimal()) or int(text) == 0:
        raise argparse.ArgumentTypeError(f"a number from 1 on is needed, but {text!r} was given")
    return int(text)


def not_negative(text: str) -> int:
    """Read a number from 0 on, for argparse."""
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"a number from 0 on is needed, but {text!r} was given")
    return int(text)
