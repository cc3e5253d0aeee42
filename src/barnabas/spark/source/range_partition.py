"""The range of one task, as Spark carries it there from the driver, which plans it without knowing how it is read."""

from pyspark.sql.datasource import InputPartition

from barnabas.spark.source.planning import OffsetRange


class RangePartition(InputPartition):
    """What Spark pickles to the task that reads a range."""

    def __init__(self, offset_range: OffsetRange) -> None:
        super().__init__(offset_range)
        self.offset_range = offset_range
