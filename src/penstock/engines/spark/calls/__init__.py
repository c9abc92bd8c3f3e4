"""Concurrent calls of a row function in one Spark task: order, timeouts, retries, clients and their measurement."""
