"""Power cuts and kills at every step of a history, and what must be there after each."""
