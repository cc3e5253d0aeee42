"""The tests: a mirror of src, and what drives the whole."""
