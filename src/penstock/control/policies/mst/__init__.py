"""MST: the fewest executors whose maximum sustainable throughput covers the expected load.

Read `policy` (the decisions), then `load` (arrivals, backlog and forecast), `margin` (the learned safety margin) and
`observed` (capacities without a study).
"""

from penstock.control.policies.mst.observed import ObservedMst
from penstock.control.policies.mst.policy import Mst, MstSettings

__all__ = ["Mst", "MstSettings", "ObservedMst"]
