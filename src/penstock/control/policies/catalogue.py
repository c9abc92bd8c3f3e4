"""The table of policies, which the CLI, the Python API and the contract suite read.

A new policy takes one file with a function `build(options: PolicyParameters) -> Policy`, and one line in `POLICIES`.
Modules are imported when a policy is built, so that listing the names is fast.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import tzinfo
from importlib import import_module
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, cast

from penstock.control.policies.adaptation_parameters import AdaptationParameters
from penstock.models.fission_costs import FissionCosts

if TYPE_CHECKING:
    from penstock.control.policy import Policy
    from penstock.control.quiet_hours import QuietHours
    from penstock.models.curve import Curve
    from penstock.study.stepwise.stored_profile import StoredProfile


class PolicyEntry(NamedTuple):
    module: str
    sets_executors: bool = False  # it chooses the number of executors itself, and needs `PolicyParameters.executors`
    has_latency_target: bool = False  # it needs `PolicyParameters.latency_s`, a limit, or both
    needs_profile: bool = False  # it needs `PolicyParameters.profile`
    needs_curves: bool = False  # it needs `PolicyParameters.curves`
    distributes_replicas: bool = False  # it can distribute a fixed number of slots, under any load, in a study
    evaluates_changes: bool = False  # it evaluates and reverts its own changes
    has_periods: bool = False  # it measures in periods of its own
    averages_itself: bool = False  # it keeps averages of its own, and reads short windows
    urgent: frozenset[str] = frozenset()  # reason codes for which it may change the plan within the cooldown


POLICIES = {
    "auto": PolicyEntry(
        "penstock.control.policies.auto",
        has_latency_target=True,
        evaluates_changes=True,
        averages_itself=True,
        urgent=frozenset({"shortage"}),
    ),
    "drs": PolicyEntry("penstock.control.policies.drs", has_latency_target=True, distributes_replicas=True),
    "threshold": PolicyEntry("penstock.control.policies.threshold", distributes_replicas=True),
    "stela": PolicyEntry("penstock.control.policies.stela", distributes_replicas=True),
    "ds2": PolicyEntry("penstock.control.policies.ds2"),
    "organic": PolicyEntry("penstock.control.policies.organic", evaluates_changes=True, has_periods=True),
    "fission-model": PolicyEntry("penstock.control.policies.fission_model"),
    "mst": PolicyEntry("penstock.control.policies.mst", sets_executors=True, has_latency_target=True),
    "stepwise": PolicyEntry("penstock.control.policies.stepwise", needs_profile=True),
    "curves": PolicyEntry("penstock.control.policies.curves", needs_curves=True),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyParameters:
    """Options that a user may give; each policy reads those that it knows."""

    max_slots: int | None = None  # slots that may be used
    latency_s: float | None = None  # latency target (T_max)
    release_below_s: float | None = None  # T_min; None: half of the target
    quantile: float | None = None  # latency quantile of the target: 0.5, 0.95 or 0.99; None: the mean
    queue: Literal["mmk", "gigk"] | None = None  # queueing model of a station (drs); None: the engine's
    executors: tuple[int, int] | None = None  # least and largest number of executors; None: the number is fixed
    slots_per_executor: int = 1  # slots of an executor
    workers: int | None = None  # workers of the cluster; None: the largest number of executors
    catch_up_s: float = 120.0  # time in which a backlog is to be processed (mst)
    capacity: tuple[float, ...] | None = None  # rows/s that 1, 2, ... executors sustain, from a study (mst)
    fission_costs: FissionCosts = field(default_factory=FissionCosts)  # costs of the engine (fission-model)
    adaptation: AdaptationParameters = field(default_factory=AdaptationParameters)  # thresholds (organic)
    profile: StoredProfile | None = None  # the result of 'penstock profile' (stepwise)
    curves: Mapping[str, Curve] | None = None  # operator -> curve, from 'penstock curves' (curves)
    program_changed: bool = False  # whether the program is another one than the profiled one (stepwise)
    drift_s: float = 60.0  # time for which backlog or latency must be above their threshold (stepwise)


class _PolicyModule(Protocol):
    def build(self, options: PolicyParameters) -> Policy: ...


def build_policy(name: str, options: PolicyParameters) -> Policy:
    """Return the policy without guards. Its plans include the number of executors if `options.executors` is set.

    Raises KeyError if the name is not in `POLICIES`, and PenstockError if the policy cannot use the options.
    """
    entry = POLICIES[name]
    policy = cast(_PolicyModule, import_module(entry.module)).build(options)
    if options.executors is None or entry.sets_executors:
        return policy

    from penstock.control.policies.elastic import Elastic

    min_executors, max_executors = options.executors
    return Elastic(
        policy, slots_per_executor=options.slots_per_executor, min_executors=min_executors, max_executors=max_executors
    )


def guarded_policy(
    name: str,
    options: PolicyParameters,
    *,
    cooldown_s: float,
    quiet_hours: QuietHours | None = None,
    zone: tzinfo | None = None,
) -> Policy:
    """Return the policy with the guards of a run: slot limit, minimum gain, pay-back of a pause, cooldown, quiet hours.

    A policy that evaluates its changes has no expected gain, and its reverts must pass.
    """
    from penstock.control.guards import Bounded, Cooldown, Hysteresis, PayBack
    from penstock.control.quiet_hours import Quiet

    policy = build_policy(name, options)
    if not POLICIES[name].evaluates_changes:
        policy = PayBack(Hysteresis(policy, gain=0.05), within_s=600.0)
    bounded = Bounded(policy, max_slots=options.max_slots)
    policy = Cooldown(bounded, seconds=cooldown_s, urgent=POLICIES[name].urgent)
    return policy if quiet_hours is None else Quiet(policy, hours=quiet_hours, zone=zone)
