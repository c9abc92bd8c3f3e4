"""A change of plan: which queries stop and start, and how their checkpoints are handed on."""
