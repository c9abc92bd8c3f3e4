"""Rounds of a scaling policy under overload: the baselines of Liu et al. (TAAS 12(4), 2017, section 6.1.3).

The plan of the first round has one task per operator. In each round the sources offer more rows than the platform can
process. The policy sees the measurements of the round and decides the plan of the next one. Nothing is revoked.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.papers.storm_flows import SLOTS_PER_NODE, Application
from penstock.control.policy import Change, Memory, Policy, Situation
from penstock.control.topology import Topology
from penstock.dataflow import Kind, regions
from penstock.engines.simulated import SimulatedEngine
from penstock.measure.window import Window
from penstock.plan import Plan, default_plan

_OFFERED = 1.5  # rows offered, relative to what all slots could process together
_WARM_UP_S, _ROUND_S = 5.0, 20.0
_NO_LIMIT = 10_000  # slots that a plan may use: as on Storm, tasks are threads and their number is not limited


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRound:
    plan: Plan
    rows_per_s: float  # external rows of the slowest operator


def policy_rounds(
    policy: Policy, application: Application, *, nodes: int, rounds: int, seed: int = 0
) -> list[PolicyRound]:
    """Return the plan and the throughput of each round.

    Args:
        policy: Decides after each round.
        application: The dataflow and the behaviour of its operators.
        nodes: Number of nodes of the platform.
        rounds: Number of rounds.
        seed: Seed of the random numbers.
    """
    flow, slots = application.flow, SLOTS_PER_NODE * nodes
    topology = Topology.of(flow)
    own = {region.name: 1 for region in regions(flow) if region.kind is not Kind.SOURCE}
    plan = default_plan(flow, slots=slots, replicas=own)
    result: list[PolicyRound] = []
    memory: Memory = {}
    for number in range(rounds):
        engine = SimulatedEngine(flow, application.costs, plan=plan, mode="row-by-row", seed=seed + number)
        engine.start()
        sources = [operator.name for operator in flow.operators if operator.kind is Kind.SOURCE]
        for name in sources:
            engine.set_rate(name, _OFFERED * slots / application.core_s_per_row / len(sources))
        engine.clock.sleep(_WARM_UP_S)
        engine.observe()
        engine.clock.sleep(_ROUND_S)
        window = engine.observe()
        engine.stop()
        result.append(PolicyRound(plan=plan, rows_per_s=_throughput(application, window)))
        situation = Situation(
            now_s=window.end_s, topology=topology, plan=plan, window=window, latest=window, max_slots=_NO_LIMIT
        )
        decision, memory = policy.decide(situation, memory)
        if isinstance(decision, Change):
            plan = decision.plan
    return result


def _throughput(application: Application, window: Window) -> float:
    """Return the external rows/s of the slowest operator."""
    return min(
        (window.operator(name).processed_rows_per_s or 0.0) / visits
        for name, visits in application.visits.items()
        if visits > 0 and application.flow[name].kind is not Kind.SOURCE
    )
