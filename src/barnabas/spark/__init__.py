"""The data pipeline on Spark: the connector `barnabas`, the format `barnabas-segments`, and the jobs over them.

    from barnabas.spark import archive, table
    archive(spark, "orders", "lake/orders", bootstrap_servers="127.0.0.1:9092")
    table(spark, "orders", archive="lake/orders", bootstrap_servers="127.0.0.1:9092")

Importing this package imports neither pyspark nor pyarrow; that is left to the first use of a name.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # As in the package above.
if TYPE_CHECKING:
    from typing import Any

    from barnabas.spark.jobs.archive import archive
    from barnabas.spark.jobs.audit import audit
    from barnabas.spark.jobs.ingest import ingest
    from barnabas.spark.jobs.load import load
    from barnabas.spark.jobs.profile import profile
    from barnabas.spark.jobs.replay import replay
    from barnabas.spark.jobs.snapshot import snapshot
    from barnabas.spark.jobs.verify import verify
    from barnabas.spark.registration import register
    from barnabas.spark.session import FAST_SETTINGS
    from barnabas.spark.unified_table import table

__all__ = [
    "FAST_SETTINGS",
    "archive",
    "audit",
    "ingest",
    "load",
    "profile",
    "register",
    "replay",
    "snapshot",
    "table",
    "verify",
]

_ELSEWHERE = {"FAST_SETTINGS": "session", "register": "registration", "table": "unified_table"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'barnabas.spark' has no attribute {name!r}")
    return getattr(import_module(f"barnabas.spark.{_ELSEWHERE.get(name, f'jobs.{name}')}"), name)
