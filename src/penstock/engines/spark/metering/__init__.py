"""Measurement of running queries: batches, task times, costs per row and latencies become a window."""
