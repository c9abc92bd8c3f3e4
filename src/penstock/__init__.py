"""Penstock measures, models, plans and scales streaming pipelines on Spark Structured Streaming."""
