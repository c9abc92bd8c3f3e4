"""A change of plan: which queries stop and start, and how the new ones continue exactly where the old ones ended."""
