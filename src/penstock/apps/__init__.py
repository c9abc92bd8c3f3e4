"""Real dataflows, each with its data generator and its batch oracle.

Every app has `flow(...)`, which declares it; `oracle(rows)`, what its output must come to after that many generated
rows, in plain Python; `actual(output)`, the same from the rows of its sink (dicts); and `check(output, rows)`, how the
two differ, one sentence a difference.
"""
