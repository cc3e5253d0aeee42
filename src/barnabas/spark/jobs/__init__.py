"""The jobs: functions on a SparkSession that move, keep and check whole topics."""
