"""What exists so far, shown in a minute: orders go into a log, the writer is killed, and nothing is lost.

`make demo` runs this. It grows with the project; today it shows the log on disk, and the tools that look into it.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from barnabas.cli.main import main as barnabas
from barnabas.clock import SystemClock
from barnabas.config import LogConfig, LogManagerConfig
from barnabas.model import TopicPartition
from barnabas.records.builder import build_batch
from barnabas.records.codecs import Codec
from barnabas.records.record import DECOMPRESSED_BYTES_MAX
from barnabas.storage.batches import records_of, scan_batches
from barnabas.storage.files import OsFiles
from barnabas.storage.log_manager import LogManager, LogManagerOptions

ORDERS = TopicPartition("orders", 0)
ORDERS_A_BATCH = 50
GOODS = ("tea", "paper", "ink", "lamp", "coat", "apple")


def log_manager(data: str) -> LogManager:
    """The logs in a folder, with segments small enough to see several."""
    return LogManager(
        LogManagerOptions(
            files=OsFiles(),
            clock=SystemClock(),
            config=LogManagerConfig(log_dirs=(data,)),
            topic_config=lambda _: LogConfig(segment_bytes=1 << 20, index_interval_bytes=4096),
        )
    )


def write_orders(data: str) -> None:
    """Append orders for ever, and say after each batch up to which offset they are in the log."""
    chance, clock = random.Random(7), SystemClock()
    manager = log_manager(data)
    manager.start()
    log = manager.get_or_create_log(ORDERS)
    while True:
        batch = []
        for number in range(log.log_end_offset, log.log_end_offset + ORDERS_A_BATCH):
            order = {"order": number, "item": chance.choice(GOODS), "price": round(chance.uniform(1, 90), 2)}
            batch.append((clock.now_ms(), f"customer-{chance.randrange(100)}".encode(), json.dumps(order).encode(), ()))
        info = log.append_as_leader(build_batch(batch, codec=chance.choice(list(Codec))), 0)
        print(info.last_offset, flush=True)


def step(sentence: str) -> None:
    """Say what happens next."""
    print(f"\n\x1b[1m{sentence}\x1b[0m" if sys.stdout.isatty() else f"\n{sentence}", flush=True)


def killed_writer(data: str, batches: int) -> int:
    """Let a process write orders, kill it without warning, and return the last offset it had acknowledged."""
    writer = subprocess.Popen([sys.executable, __file__, "write", data], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    acknowledged = [writer.stdout.readline() for _ in range(batches)]
    writer.send_signal(signal.SIGKILL)
    acknowledged += writer.stdout.readlines()
    writer.wait()
    return int(acknowledged[-1])


def main() -> int:
    """Tell the story from the first order to the last check."""
    data = os.path.join(tempfile.mkdtemp(prefix="barnabas-demo-"), "data")
    step("1. Orders arrive, in batches of five codecs, and the writer is killed in the middle (kill -9).")
    acknowledged = killed_writer(data, 2000)
    print(f"   The last offset it had acknowledged is {acknowledged:,}.")

    step("2. The folder is opened again: the log is recovered, and everything acknowledged is there.")
    manager = log_manager(data)
    manager.start()
    log = manager.get_or_create_log(ORDERS)
    orders = [
        json.loads(record.value or b"{}")["order"]
        for segment in log.segments
        for _, header, view in scan_batches(segment.log_file())
        for record in records_of(view, header, DECOMPRESSED_BYTES_MAX)
    ]
    print(f"   {len(orders):,} orders in {len(log.segments)} segments, {log.size_bytes / 1e6:.1f} MB.")
    is_complete = orders == list(range(log.log_end_offset)) and log.log_end_offset > acknowledged
    print(f"   Each order once, in order, none lost: {'yes' if is_complete else 'NO'}.")
    manager.shutdown()

    step("3. `barnabas verify` checks every batch, record, index and checkpoint.")
    exit_code = barnabas(["verify", data])

    step("4. `barnabas dump` shows what is in the files: here leader epochs and a checkpoint.")
    index = sorted(Path(data, "orders-0").glob("*.index"))[0]
    barnabas(["dump", str(index.with_name("leader-epoch-checkpoint")), f"{data}/recovery-point-offset-checkpoint"])
    print(
        f"\nThe files are Kafka's own: any Kafka tool reads {index.with_suffix('.log').name}. Removing the demo's data."
    )
    shutil.rmtree(os.path.dirname(data))
    return 0 if is_complete and exit_code == 0 else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["write"]:
        write_orders(sys.argv[2])
    sys.exit(main())
