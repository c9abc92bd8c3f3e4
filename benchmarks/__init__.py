"""Timings and their bars; tests assert none."""
