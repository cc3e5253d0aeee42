"""Barnabas: a log broker that every Kafka client already speaks to.

from barnabas import Broker
"""

from __future__ import annotations

# Not from `typing`, which takes longer to import than all that a process of Spark's waits for here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from barnabas.embedded import Broker

__all__ = ["Broker"]


def __getattr__(name: str) -> Any:
    # Imported when it is first used, so that `import barnabas` costs nothing.
    if name == "Broker":
        from barnabas.embedded import Broker

        return Broker
    raise AttributeError(f"module 'barnabas' has no attribute {name!r}")
