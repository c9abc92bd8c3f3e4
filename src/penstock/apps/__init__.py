"""Real dataflows, each with a data generator and a batch oracle.

Every app is a module with four functions:

- `flow(...)` declares the dataflow.
- `oracle(rows)` computes the expected result of that many generated rows in plain Python.
- `actual(output)` computes the same result from the rows (dicts) of the sink.
- `check(output, rows)` returns the differences between the two, one sentence each.
"""
