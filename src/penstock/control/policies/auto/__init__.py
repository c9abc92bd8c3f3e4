"""Policy `auto`: the cheapest plan that meets a latency target within a limit. It learns the costs while it runs."""

from __future__ import annotations

from penstock.control.policies.auto.policy import Auto
from penstock.control.policies.auto.replay import Target
from penstock.control.policies.catalogue import PolicyParameters


def build(options: PolicyParameters) -> Auto:
    target = None if options.latency_s is None else Target(seconds=options.latency_s, quantile=options.quantile)
    per_executor = 1 if options.executors is None else options.slots_per_executor
    fewest = 1 if options.executors is None else options.executors[0]
    return Auto(target=target, slots_per_executor=per_executor, min_executors=fewest)


__all__ = ["Auto", "build"]
