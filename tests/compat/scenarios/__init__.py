"""What every client is asked to do: one module a subject, and `catalog`, the one list of them all."""
