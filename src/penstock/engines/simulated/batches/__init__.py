"""Micro-batch mode: queries run batches in stages and tasks on shared slots, like Spark Structured Streaming."""
