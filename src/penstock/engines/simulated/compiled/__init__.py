"""Compiled (numba) parts that both event-driven modes use: random draws, counts and the event heap."""
