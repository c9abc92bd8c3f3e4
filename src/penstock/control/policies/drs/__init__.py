"""DRS: the fewest slots that meet a latency target, or the lowest latency within a number of slots.

Source: Fu et al., "DRS: Auto-Scaling for Real-Time Stream Analytics", ToN 25(6), 2017, sections III and IV.

Read `policy` (the decisions), then `problem` (goals and the planning problem), `stations` (the queueing network) and
`learning` (what is learned from measurements).
"""

from penstock.control.policies.drs.policy import Drs
from penstock.control.policies.drs.problem import DrsSettings, FewestSlots, LeastLatency

__all__ = ["Drs", "DrsSettings", "FewestSlots", "LeastLatency"]
