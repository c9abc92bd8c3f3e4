"""MST: the fewest executors whose maximum sustainable throughput covers the expected load.

Read `policy` (the decisions), then `load` (arrivals, backlog and forecast), `margin` (the learned safety margin),
`insufficient` (executor counts that are not used again), `observed` (capacities without a study) and `watched` (the
queries of another program).
"""

from penstock.control.policies.catalogue import PolicyParameters
from penstock.control.policies.mst.observed import ObservedMst
from penstock.control.policies.mst.policy import Mst, MstSettings
from penstock.control.policies.mst.watched import WatchedMst
from penstock.control.policy import Policy
from penstock.dataflow.errors import PenstockError

__all__ = ["Mst", "MstSettings", "ObservedMst", "WatchedMst", "build"]


def build(options: PolicyParameters) -> Policy:
    """Return MST with the capacities of a study if they are given, and otherwise with observed capacities."""
    if options.executors is None:
        raise PenstockError("Policy 'mst' needs the smallest and the largest number of executors, such as (1, 6).")
    min_executors, max_executors = options.executors
    if options.capacity is None:
        return ObservedMst(
            slots_per_executor=options.slots_per_executor,
            min_executors=min_executors,
            max_executors=max_executors,
            catch_up_s=options.catch_up_s,
            target_s=options.latency_s,
            quantile=options.quantile,
        )
    return Mst(
        MstSettings(
            capacity=options.capacity,
            slots_per_executor=options.slots_per_executor,
            min_executors=min_executors,
            max_executors=max_executors,
            catch_up_s=options.catch_up_s,
            target_s=options.latency_s,
            quantile=options.quantile,
        )
    )
