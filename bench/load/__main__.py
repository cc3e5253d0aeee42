"""The process of the generator: `python -m bench.load COMMAND SPEC [ACKNOWLEDGED]`, all in JSON.

produce   prints `ready` when it is connected, waits for a line on stdin, loads the broker, prints a report
fetch     the same, reading what a produce load wrote; ACKNOWLEDGED is the list in the report of that load
check     compares what is in the log with what was sent, and prints the number of batches that are not there
stub      prints its port, and answers one produce load

The wait lets the caller read the broker's CPU time just before and just after the load.
"""

import json
import sys
from collections.abc import Sequence

from bench.load.fetching import FetchLoad
from bench.load.producing import ProduceLoad
from bench.load.spec import LoadError, LoadSpec
from bench.load.stub import StubServer


def main(words: Sequence[str]) -> int:
    """Run one command; 1 and a sentence on stderr where the broker did not answer as it must."""
    command, spec = words[0], LoadSpec.from_json(words[1])
    acknowledged: list[int] = json.loads(words[2]) if len(words) > 2 else []
    try:
        _run(command, spec, acknowledged)
    except (LoadError, OSError) as error:
        print(f"{command} of {spec.topic}: {error}", file=sys.stderr)
        return 1
    return 0


def _run(command: str, spec: LoadSpec, acknowledged: list[int]) -> None:
    match command:
        case "produce":
            produce = ProduceLoad(spec)
            _wait_for_go()
            print(produce.run().to_json(), flush=True)
        case "fetch":
            fetch = FetchLoad(spec, acknowledged)
            fetch.read(compare=False)
            _wait_for_go()
            report = fetch.measure()
            if fetch.faults:
                raise LoadError(f"{fetch.faults} batches are not the ones that were sent")
            print(report.to_json(), flush=True)
        case "check":
            check = FetchLoad(spec, acknowledged)
            check.read(compare=True)
            print(check.faults, flush=True)
        case "stub":
            stub = StubServer(spec)
            print(stub.port, flush=True)
            stub.serve()
        case _:
            raise LoadError("there is no such command")


def _wait_for_go() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
