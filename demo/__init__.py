"""The demo: a shop's orders and payments go through a broker and the data pipeline, and nothing is lost."""
