"""The messages, one declaration each for all versions: a module a family of APIs."""
