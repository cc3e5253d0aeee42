"""A shop, made up from a seed: what was ordered yesterday, and what happens today.

    shop = Shop(seed=7)
    shop.write_yesterday(path, orders=2000)      # a CSV file, as another system would leave it
    for event in shop.today(): ...              # orders placed, paid and shipped, and the payments

The shop remembers what must come out in the end, so that the demo can compare.
"""

import csv
import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ORDERS = "orders"
PAYMENTS = "payments"

PRICES_CENTS = {"tea": 450, "paper": 320, "ink": 780, "lamp": 2_900, "coat": 8_900, "apple": 60}
SCHEMA = "id STRING, product STRING, quantity INT, cents INT, status STRING"
COLUMNS = ("id", "product", "quantity", "cents", "status")
# Of the open orders so many wait at most: the oldest one goes on then.
_OPEN_MAX = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A record that the shop sends."""

    topic: str
    key: str
    value: str


@dataclass(slots=True)
class Shop:
    """The orders so far."""

    seed: int
    # What must be found in the end: the last status of every order, the paid cents of every product, and how many
    # records there are of orders.
    statuses: dict[str, str] = field(default_factory=dict)
    revenue_cents: Counter[str] = field(default_factory=Counter)
    order_records: int = 0
    _chance: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)

    def write_yesterday(self, path: Path, orders: int) -> None:
        """Write a file of orders that were paid yesterday."""
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(COLUMNS)
            for _ in range(orders):
                order = self._new_order() | {"status": "paid"}
                self._count(order)
                writer.writerow([order[column] for column in COLUMNS])

    def today(self) -> Iterator[Event]:
        """Yield what happens today: new orders, and what becomes of those before. It ends when nobody asks."""
        waiting: list[dict[str, str | int]] = []
        while True:
            if not waiting or (len(waiting) < _OPEN_MAX and self._chance.random() < 0.5):
                order = self._new_order() | {"status": "placed"}
                waiting.append(order)
            else:
                # An order that was placed is paid, and one that was paid is shipped.
                order = waiting.pop(self._chance.randrange(len(waiting)))
                is_paid_now = order["status"] == "placed"
                order = order | {"status": "paid" if is_paid_now else "shipped"}
                if is_paid_now:
                    waiting.append(order)
                    payment = {"order": order["id"], "cents": order["cents"]}
                    yield Event(topic=PAYMENTS, key=str(order["id"]), value=json.dumps(payment))
            self._count(order)
            yield Event(topic=ORDERS, key=str(order["id"]), value=json.dumps(order))

    def _new_order(self) -> dict[str, str | int]:
        product = self._chance.choice(list(PRICES_CENTS))
        quantity = self._chance.randint(1, 5)
        number = len(self.statuses)
        return {
            "id": f"order-{number:07d}",
            "product": product,
            "quantity": quantity,
            "cents": quantity * PRICES_CENTS[product],
        }

    def _count(self, order: dict[str, str | int]) -> None:
        self.order_records += 1
        self.statuses[str(order["id"])] = str(order["status"])
        if order["status"] == "paid":
            self.revenue_cents[str(order["product"])] += int(order["cents"])
