"""The streaming queries of an existing program: `engine`, `history` (one query) and `backlog` (its sources)."""

from penstock.engines.spark.watched.engine import WatchedEngine

__all__ = ["WatchedEngine"]
