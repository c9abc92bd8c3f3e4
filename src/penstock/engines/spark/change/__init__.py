"""A change of plan: the queries that it stops and starts, and how new ones continue exactly where old ones ended."""
