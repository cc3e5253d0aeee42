"""What the tests share that kill brokers: how often, at which moments, and how a broker comes back."""

import os
import random
import subprocess
import sys
import threading
from pathlib import Path

from barnabas.embedded import Broker, BrokerFailedError

KILLS = int(os.environ.get("BARNABAS_KILLS", "6"))
"""How often a broker is killed in a test."""

KILLED_WHILE_STARTING = 0.3
START_SECONDS = 0.8


def new_seed() -> int:
    """Return what all moments are chosen by: BARNABAS_SEED, or a number of its own, which a failed test prints."""
    seed = int(os.environ.get("BARNABAS_SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"to do it again: BARNABAS_SEED={seed} BARNABAS_KILLS={KILLS}")
    return seed


def kill_and_start(broker: Broker, chance: random.Random) -> int:
    """Kill a broker, and start it again; sometimes it is killed while it starts, too. Return the number of kills."""
    assert "Traceback" not in broker.log, broker.log
    broker.kill()
    kills = 1
    while not broker.is_running:
        if chance.random() >= KILLED_WHILE_STARTING:
            broker.start()
            continue
        killer = threading.Timer(chance.uniform(0, START_SECONDS), broker.kill)
        killer.start()
        try:
            broker.start()
        except BrokerFailedError:
            pass  # It was killed before it was ready.
        killer.join()
        kills += 1
    return kills


def faults_found(data: Path) -> str:
    """Return what `barnabas verify` has to say against a log directory: nothing."""
    command = [sys.executable, "-m", "barnabas.cli.main", "verify", str(data)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr
