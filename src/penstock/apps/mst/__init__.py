"""The benchmarks on which maximum sustainable throughput was predicted, as dataflows.

Imai, Patterson and Varela, "Maximum sustainable throughput prediction for large-scale data streaming systems",
sections 4.4 and 5.1: word count (in `penstock.apps.wordcount`), SOL and rolling sort; grep, rolling count, unique
visitor, page view, data clean; and a Hoeffding tree. Each has `flow`, `oracle`, `actual` and `check`, as all apps have.

What they share is that their output does not depend on where one batch ends and the next begins: counts that only
grow, windows of event time of which no row is late, and a tree that learns in the order of row numbers.
"""
