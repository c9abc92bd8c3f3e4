"""The benchmarks of the paper on maximum sustainable throughput, as dataflows.

Imai, Patterson and Varela, "Maximum sustainable throughput prediction for large-scale data streaming systems",
sections 4.4 and 5.1: word count (in `penstock.apps.wordcount`), SOL and rolling sort; grep, rolling count, unique
visitor, page view, data clean; and a Hoeffding tree, in one operator (`decision_tree`) and in several
(`vertical_tree`). Each has `flow`, `oracle`, `actual` and `check`, like all apps.

Their output does not depend on the boundaries of batches: counts only grow, no row of an event-time window is late, and
the trees learn in the order of row numbers.
"""
