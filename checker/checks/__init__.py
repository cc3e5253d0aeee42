"""What must hold of a history: pure functions from what was found to what is wrong with it."""
