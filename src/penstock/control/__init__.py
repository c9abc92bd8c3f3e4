"""The control loop: read `loop`, `controller`, a policy in `policies`, `guards`, and the engine contract in order.

`loop` takes turns; `controller` decides in each turn; `policy` defines what a policy receives and returns; `evaluation`
compares a change with its expectation; `change_history` keeps the applied changes and their verdicts; `plan_changes`
applies a plan and records the result. `run`, `watch`, `simulation` and `study.mst.replica_search` are the users of the
loop.
"""
