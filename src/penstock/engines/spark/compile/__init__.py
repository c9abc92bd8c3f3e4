"""From a pipeline to a streaming query."""
