"""Measurement of running queries: batches, stages, costs and lineage become a window."""
