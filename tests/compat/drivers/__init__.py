"""One module a client, all with the words of `tests.compat.model.Driver`."""
