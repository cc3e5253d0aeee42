"""The commands, as people use them."""
