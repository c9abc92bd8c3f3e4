"""Find the best plan of a dataflow on a given platform with a few trials.

Source: Liu, Dastjerdi, Calheiros, Qu and Buyya, "A Stepwise Auto-Profiling Method for Performance Optimization of
Streaming Applications", ACM TAAS 12(4), 2017. Each module contains the decisions of one step as pure functions of
measurements: `operator_types`, `features`, `dominance` and `task_ratios` (section 4.1), `platform_capability` (section
4.2), `operator_capacity` (section 4.3) and `sequential_test` (when a trial may end). `trial` measures on an engine, and
`study` makes the trials that the decisions ask for.
"""
