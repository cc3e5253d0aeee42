"""What exists so far, shown in a minute: orders flow through a broker, it is killed, and nothing is lost or doubled.

`make demo` runs this. It grows with the project; today it shows the broker, a client of it, and the tools that look
into its files.
"""

import json
import random
import shutil
import sys
import tempfile
from pathlib import Path

from barnabas import Broker
from barnabas.cli.main import main as barnabas
from barnabas.client.admin import NewTopic, create_topics
from barnabas.client.client import Client
from barnabas.client.fetcher import Fetcher
from barnabas.client.producer import Producer, ProducerOptions
from barnabas.clock import SystemClock
from barnabas.model import TopicPartition
from barnabas.records.codecs import Codec

ORDERS = 100_000
PARTITIONS = 3
GOODS = ("tea", "paper", "ink", "lamp", "coat", "apple")


def step(sentence: str) -> None:
    """Say what happens next."""
    print(f"\n\x1b[1m{sentence}\x1b[0m" if sys.stdout.isatty() else f"\n{sentence}", flush=True)


def write_orders(broker: Broker, client: Client) -> int:
    """Produce all orders, and kill the broker when half of them are sent; return how many were acknowledged."""
    chance = random.Random(7)
    with Producer(client, ProducerOptions(codec=Codec.LZ4, batch_size=16 * 1024)) as producer:
        for number in range(ORDERS):
            order = {"order": number, "item": chance.choice(GOODS), "price": round(chance.uniform(1, 90), 2)}
            producer.send("orders", json.dumps(order).encode(), key=b"customer-%d" % chance.randrange(100))
            if number == ORDERS // 2:
                broker.kill()
                broker.start()
        producer.flush()
        return producer.records_acknowledged


def read_orders(client: Client) -> list[int]:
    """Read every partition from its first record to its last."""
    fetcher = Fetcher(client, {TopicPartition("orders", partition): 0 for partition in range(PARTITIONS)})
    orders: list[int] = []
    while len(orders) < ORDERS:
        fetched = [record for partition in fetcher.poll(1000) for record in partition.records()]
        if not fetched:
            break
        orders += [json.loads(record.value or b"{}")["order"] for record in fetched]
    return orders


def main() -> int:
    """Tell the story from the first order to the last check."""
    clock = SystemClock()
    folder = Path(tempfile.mkdtemp(prefix="barnabas-demo-"))
    started = clock.monotonic_seconds()
    with Broker(data=folder / "data") as broker, Client(broker.bootstrap_servers) as client:
        step("1. A broker starts. Every Kafka client can connect to it.")
        print(f"   {broker.bootstrap_servers} answers after {clock.monotonic_seconds() - started:.1f} s.")
        create_topics(client, [NewTopic(name="orders", partitions=PARTITIONS)])

        step(f"2. {ORDERS:,} orders arrive, and in the middle the broker is killed (kill -9) and started again.")
        acknowledged = write_orders(broker, client)
        print(f"   {acknowledged:,} orders were acknowledged.")

        step("3. A consumer reads them all.")
        orders = read_orders(client)
        is_complete = sorted(orders) == list(range(ORDERS))
        print(f"   {len(orders):,} orders. Each order once, none lost: {'yes' if is_complete else 'NO'}.")

        step("4. `barnabas topics describe` shows the topic.")
        barnabas(["topics", "describe", "orders", "--bootstrap-server", broker.bootstrap_servers])

    step("5. The broker has stopped. `barnabas verify` checks every batch, record, index and checkpoint it left.")
    exit_code = barnabas(["verify", str(folder / "data")])

    step("6. `barnabas dump` shows what is in the files, which are Kafka's own: here a checkpoint.")
    barnabas(["dump", str(folder / "data" / "recovery-point-offset-checkpoint")])
    shutil.rmtree(folder)
    return 0 if is_complete and exit_code == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
