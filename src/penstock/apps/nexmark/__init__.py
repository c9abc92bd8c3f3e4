"""Nexmark: the queries 0 to 8, 11 and 12 of the benchmark for data streams, on an online auction.

Each query is a module with `flow`, `oracle`, `actual` and `check`, like all apps. The generator is in `generator`.
"""

from penstock.apps.nexmark import q0, q1, q2, q3, q4, q5, q6, q7, q8, q11, q12

QUERIES = (q0, q1, q2, q3, q4, q5, q6, q7, q8, q11, q12)
