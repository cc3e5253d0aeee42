"""Starts the generator's process and brings back what it says."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from bench.load.spec import LoadError, LoadReport, LoadSpec

ROOT = Path(__file__).parent.parent.parent
# Longer than any load and any silence that a load bears.
TIMEOUT_S = 120.0


class Generator:
    """One process of the generator; it is connected to the broker when this is made."""

    def __init__(self, command: str, spec: LoadSpec, acknowledged: list[int] | None = None) -> None:
        words = [command, spec.to_json(), *([json.dumps(acknowledged)] if acknowledged is not None else [])]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.load", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self.first_line = self._line()

    def run(self, while_it_runs: Callable[[], None], every_s: float) -> LoadReport:
        """Let the load begin, call a function now and then until it ends, and return its report."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        while True:
            try:
                out, errors = self._process.communicate(timeout=every_s)
            except subprocess.TimeoutExpired:
                while_it_runs()
                continue
            if self._process.returncode:
                raise LoadError(errors.strip())
            return LoadReport.from_json(out)

    def close(self) -> None:
        """End the process if it is there."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise LoadError(self._process.communicate()[1].strip())
        return line.strip()


def faults_in_log(spec: LoadSpec, acknowledged: list[int]) -> int:
    """How many acknowledged batches are not in the log as they were sent."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.load", "check", spec.to_json(), json.dumps(acknowledged)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise LoadError(done.stderr.strip())
    return int(done.stdout)


def measure_generator(spec: LoadSpec) -> LoadReport:
    """What a load reaches against the stub."""
    stub = Generator("stub", spec)
    try:
        generator = Generator("produce", replace(spec, port=int(stub.first_line)))
        try:
            return generator.run(lambda: None, 1.0)
        finally:
            generator.close()
    finally:
        stub.close()
