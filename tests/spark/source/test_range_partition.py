"""The range of a task travels, and the driver that plans it needs nothing of what reads it."""

import pickle
import subprocess
import sys
from uuid import UUID

from barnabas.model import TopicPartition
from barnabas.spark.source.planning import OffsetRange
from barnabas.spark.source.range_partition import RangePartition


def test_a_range_travels_to_its_task() -> None:
    offset_range = OffsetRange(
        partition=TopicPartition("orders", 3), topic_id=UUID(int=7), start_offset=5, end_offset=70
    )
    there = pickle.loads(pickle.dumps(RangePartition(offset_range)))
    assert isinstance(there, RangePartition)
    assert there.offset_range == offset_range


def test_planning_does_not_import_what_reads() -> None:
    program = (
        "import sys, barnabas.spark.source.stream_reader; print('barnabas.spark.source.range_rows' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
