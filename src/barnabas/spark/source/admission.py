"""What newer versions of PySpark have for limiting the batches of a stream, and stand-ins where they do not.

Since 4.2 Spark tells a source how much a batch may have, and lets it know of Trigger.AvailableNow. On 4.1 there is
neither: `HAS_ADMISSION_CONTROL` is False there, and options that need it are refused by name.
"""

from dataclasses import dataclass

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )

    HAS_ADMISSION_CONTROL = True
except ImportError:
    HAS_ADMISSION_CONTROL = False

    class ReadLimit:  # type: ignore[no-redef]
        """How much a batch may have."""

    @dataclass
    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]
        """Everything."""

    @dataclass
    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef]
        """So many rows at most."""

        max_rows: int

    @dataclass
    class ReadMinRows(ReadLimit):  # type: ignore[no-redef]
        """So many rows at least."""

        min_rows: int

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """What a source that can stop at a target derives from."""


__all__ = [
    "HAS_ADMISSION_CONTROL",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "ReadMinRows",
    "SupportsTriggerAvailableNow",
]
