"""One module a section. Each has a docstring, and `run() -> Iterator[Measurement]`."""
