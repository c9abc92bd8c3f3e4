"""Spark Structured Streaming: compile a plan to queries, channels, measurement, apply."""
