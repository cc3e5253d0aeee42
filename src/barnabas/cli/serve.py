"""`barnabas serve`: runs a broker until it is told to stop.

One line goes to stdout when clients are answered; everything else goes to stderr. SIGTERM and SIGINT stop it in order;
a second one ends it at once, as if it were killed.
"""

import argparse
import gc
import logging
import os
import signal
import sys
from pathlib import Path

from barnabas.broker_config import Settings, broker_names, read_properties, resolve
from barnabas.clock import SystemClock
from barnabas.config import ConfigError

EXAMPLES = """\
examples:
  barnabas serve                                            on 127.0.0.1:9092, with its data in ./barnabas-data
  barnabas serve --data /var/lib/barnabas --listen 0.0.0.0:9092
  barnabas serve --config server.properties --set num.partitions=6 --set log.retention.hours=24
  barnabas serve --set flush.messages=1                     an acknowledged record survives a power cut

Every setting has Kafka's name. Settings of topics can be given by either name: log.retention.ms or retention.ms.
"""
DEFAULT_DATA = "barnabas-data"
_PR_SET_PDEATHSIG = 1
_PARENT_SIGNAL = signal.SIGHUP


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Run a broker until SIGTERM or Ctrl-C. It says in one line on stdout when clients are answered."
    )
    parser.epilog = EXAMPLES
    parser.add_argument("--data", metavar="DIR", help=f"where the data is (log.dirs; default: {DEFAULT_DATA})")
    parser.add_argument("--listen", metavar="HOST:PORT", help="where to listen; port 0 takes a free one")
    parser.add_argument("--config", metavar="FILE", help="a server.properties")
    parser.add_argument(
        "--set", metavar="NAME=VALUE", action="append", default=[], help="a setting; stronger than the file"
    )
    parser.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    # For whoever starts a broker of their own (`barnabas.Broker`): it is not to outlive them.
    parser.add_argument("--parent", type=int, metavar="PID", help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    """Run the broker, and return the exit code."""
    if not __debug__:
        print(
            "barnabas serve: python -O leaves out the checks that protect the data; start it without", file=sys.stderr
        )
        return 2
    if arguments.parent is not None and not _stop_with(arguments.parent):
        return 1
    logging.basicConfig(
        level=arguments.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )
    try:
        settings = resolve(given_settings(arguments))
    except (ConfigError, OSError) as error:
        return _fail(str(error))
    return _serve(settings, arguments.parent)


def _stop_with(parent: int) -> bool:
    """Have this process told when its parent goes away without stopping it; False when it is gone already.

    Linux tells so with a signal of our choice whenever a thread of the parent ends that was in charge of this process:
    the one that started it, then another one, if there is any. So it may come twice, or while the parent lives on.

    The child asks for that itself: a parent that did between fork and exec would run Python code in a copy of itself,
    where the threads and locks of others (those of Spark's gateway, say) are cut off in the middle.
    """
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, _PARENT_SIGNAL)
    return os.getppid() == parent


def given_settings(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the settings that were given: the file, and the command line over it."""
    given: dict[str, str] = {}
    if arguments.config is not None:
        try:
            given.update(read_properties(Path(arguments.config).read_text(encoding="utf-8")))
        except UnicodeDecodeError as error:
            raise ConfigError(f"{arguments.config} is not UTF-8: {error}") from None
        except OSError as error:
            raise ConfigError(f"the config file {arguments.config} can not be read: {error.strerror}") from None
    chosen: dict[str, str] = {}
    for text in arguments.set:
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            raise ConfigError(f"--set takes NAME=VALUE, not {text!r}")
        chosen[name.strip()] = value.strip()
    given.update(broker_names(chosen))
    if arguments.data is not None:
        given["log.dirs"] = arguments.data
    elif not {"log.dirs", "log.dir"} & given.keys():
        given["log.dirs"] = DEFAULT_DATA
    if arguments.listen is not None:
        given["listeners"] = f"PLAINTEXT://{arguments.listen}"
    return given


def _fail(reason: str) -> int:
    # One line, also where SQLite tells at length what is wrong with a file.
    print(f"barnabas serve: {'; '.join(reason.splitlines())}", file=sys.stderr)
    return 1


def _serve(settings: Settings, parent: int | None) -> int:
    # These are what takes the time to import, and a mistake in the arguments is to be told at once. Next to nothing of
    # what they and the start make is garbage, and to look for it would take a tenth of the time.
    gc.disable()
    import asyncio
    import sqlite3

    import uvloop

    from barnabas.cluster.nodes import NodeValueError
    from barnabas.cluster.store import MetadataStoreError
    from barnabas.server.broker_server import StartError
    from barnabas.server.socket_server import ListenError
    from barnabas.storage.files import DirectoryLockedError
    from barnabas.storage.log_directory import LogDirectoryError
    from barnabas.storage.log_manager import NoLogDirectoryError

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_run(settings, parent))
    except (
        StartError,
        ListenError,
        DirectoryLockedError,
        LogDirectoryError,
        NoLogDirectoryError,
        MetadataStoreError,
        NodeValueError,
        sqlite3.Error,
        OSError,
    ) as error:
        return _fail(str(error))
    finally:
        gc.enable()


async def _run(settings: Settings, parent: int | None) -> int:
    import asyncio

    from barnabas.server.broker_server import BrokerServer

    stopping = asyncio.Event()
    reasons: list[str] = []

    def fatal(reason: str) -> None:
        reasons.append(reason)
        stopping.set()

    loop = asyncio.get_running_loop()

    def interrupt() -> None:
        if stopping.is_set():
            os._exit(130)  # Asked twice: whoever asks does not want to wait for the disk.
        stopping.set()

    def look_for_parent() -> None:
        if os.getppid() != parent:
            stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, interrupt)
    if parent is not None:
        loop.add_signal_handler(_PARENT_SIGNAL, look_for_parent)
        look_for_parent()  # Who runs under nohup does not get the signal before there is a handler.
    clock = SystemClock()
    server = BrokerServer(settings, clock=clock, on_fatal=fatal)
    await server.start()
    listening = ", ".join(str(endpoint).partition("://")[2] for endpoint in server.listening.values())
    seconds = clock.seconds_since_process_start()
    data = ", ".join(settings.manager.log_dirs)
    print(f"barnabas ready on {listening} (data {data}) in {seconds:.1f} s", flush=True)
    # What is there now stays: later searches for garbage need not look at it.
    gc.freeze()
    gc.enable()
    await stopping.wait()
    await server.stop()
    return _fail(reasons[0]) if reasons else 0
