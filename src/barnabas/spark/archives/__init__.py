"""Archives: topics kept as Parquet, with a manifest of offset ranges for every commit."""
