"""DRS: the fewest slots that meet a latency target, or the lowest latency within a number of slots.

Source: Fu et al., "DRS: Auto-Scaling for Real-Time Stream Analytics", ToN 25(6), 2017, sections III and IV.

Read `policy` (the decisions), then `problem` (goals and the planning problem), `stations` (the queueing network) and
`learning` (what is learned from measurements).
"""

from penstock.control.policies.catalogue import PolicyParameters
from penstock.control.policies.drs.policy import Drs
from penstock.control.policies.drs.problem import DrsSettings, FewestSlots, LeastLatency
from penstock.control.policy import Policy

__all__ = ["Drs", "DrsSettings", "FewestSlots", "LeastLatency", "build"]


def build(options: PolicyParameters) -> Policy:
    """Return DRS for a latency target (within the slot limit, if there is one), or for the slots of the limit."""
    if options.latency_s is None:
        return Drs(DrsSettings(goal=LeastLatency(max_slots=options.max_slots), queue=options.queue))
    goal = FewestSlots(
        max_s=options.latency_s,
        min_s=options.release_below_s,
        quantile=options.quantile,
        # Plan below the target and for more rows than arrive; otherwise the next fluctuation would undo the plan.
        aim=0.8,
        room=0.05,
    )
    return Drs(DrsSettings(goal=goal, queue=options.queue))
