"""The options of a scaling policy, and the policy with its guards that they describe."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from datetime import tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from penstock.api.input_files import curves_at
from penstock.control.policies.adaptation_parameters import AdaptationParameters
from penstock.control.policies.catalogue import POLICIES
from penstock.control.quiet_hours import QuietHours
from penstock.dataflow.errors import PenstockError
from penstock.dataflow.local_paths import local_directory
from penstock.models.fission_costs import FissionCosts

if TYPE_CHECKING:
    from penstock.control.controller import Settings
    from penstock.control.policy import Policy
    from penstock.dataflow import Dataflow
    from penstock.measure.smoothing import Smoothing
    from penstock.store import LatencyTarget
    from penstock.study.stepwise.stored_profile import StoredProfile

Mode = Literal["off", "recommend", "active"]
Queue = Literal["mmk", "gigk"]

DEFAULT_POLICY = "auto"  # if a latency target or a limit is given
MEASURED_QUANTILES = (0.5, 0.95, 0.99)  # quantiles of the latency that a window contains
# Executors that are added for a predicted load improve nothing until that load arrives.
_PREDICTIVE_TOLERANCE = 0.9
_SHORT_WINDOW_S = 10.0  # windows are averaged over this time for a policy with averages of its own


class OptionError(PenstockError):
    """An option has an invalid value, or does not fit the other options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyOptions:
    """All options of `penstock.run` and `penstock.simulate` that concern the policy; see `penstock.run`."""

    policy: str | None = None
    mode: Mode = "recommend"
    latency_s: float | None = None
    release_below_s: float | None = None
    quantile: float | None = None
    max_slots: int | None = None
    cooldown_s: float = 60.0
    quiet_hours: str | None = None  # such as 22:00-06:00
    zone: tzinfo | None = None  # time zone of the quiet hours; None: the local time
    windows: int = 5
    warm_up_s: float = 15.0
    executors: tuple[int, int] | None = None
    executor_cores: int | None = None
    catch_up_s: float = 120.0
    mst_study: Path | None = None
    adaptation: AdaptationParameters | None = None  # None: the default thresholds
    thread_s: float = 0.0
    replica_s: float = 0.0
    profile: Path | None = None  # directory of a study by `penstock.profile`
    drift_s: float = 60.0
    curves: Path | None = None  # directory of a study by `penstock.measure_curves`, or a JSON file
    queue: Queue | None = None  # model of a station; None: M/M/k row by row, the micro-batch model in micro-batches
    alpha: float | None = None  # weight of earlier windows in exponential smoothing; None: the mean of `windows`
    workers: int | None = None  # tasks that Stela adds per round; None: the largest number of executors
    dataflow: str = ""
    program: str | None = None  # fingerprint of the program, if there is a profile to compare it with
    micro_batch: bool = True  # whether the engine processes micro-batches

    def with_default_policy(self) -> PolicyOptions:
        """Return these options with policy auto if a latency target or a limit is given without a policy."""
        wanted = (self.latency_s, self.max_slots, self.executors)
        if self.policy is not None or all(value is None for value in wanted):
            return self
        return replace(self, policy=DEFAULT_POLICY)

    @property
    def latency_target(self) -> LatencyTarget | None:
        """The target for the record of a run."""
        from penstock.store import LatencyTarget

        return None if self.latency_s is None else LatencyTarget(seconds=self.latency_s, quantile=self.quantile)

    @property
    def slot_limit(self) -> int | None:
        """The slots of the largest number of executors; None if the number of executors is fixed."""
        return None if self.executors is None else self.executors[1] * (self.executor_cores or 1)

    def limited_to(self, executors: int) -> PolicyOptions:
        """Return these options for a cluster with room for this number of executors."""
        if self.executors is None:
            return self
        min_executors, max_executors = self.executors
        return replace(self, executors=(min(min_executors, executors), min(max_executors, executors)))

    def check(self, *, any_target: bool = False) -> None:
        """Raise OptionError if an option is invalid or does not fit the policy.

        `any_target` also accepts a latency target for policies that do not use one. It then only serves to count
        violations.
        """
        self._check_values()
        if self.policy is None:
            self._check_no_policy()
            return
        entry = POLICIES[self.policy]
        if entry.sets_executors and self.executors is None:
            raise OptionError(
                f"Policy '{self.policy}' requires 'executors': the smallest and largest number, such as 1 and 6."
            )
        if self.mst_study is not None and not entry.sets_executors:
            users = " or ".join(f"'{name}'" for name, other in POLICIES.items() if other.sets_executors)
            raise OptionError(f"Policy '{self.policy}' uses no throughput study; use policy {users} with a study.")
        if self.adaptation is not None and not entry.has_periods:
            users = " or ".join(f"'{name}'" for name, other in POLICIES.items() if other.has_periods)
            raise OptionError(f"Policy '{self.policy}' has no adaptation parameters; use policy {users} for them.")
        if entry.needs_profile and self.profile is None:
            raise OptionError(
                f"Policy '{self.policy}' requires 'profile': the directory of a study by 'penstock profile'."
            )
        if entry.needs_curves and self.curves is None:
            raise OptionError(
                f"Policy '{self.policy}' requires 'curves': the directory of a study by 'penstock curves', or a file."
            )
        if self.curves is not None and not entry.needs_curves:
            users = " or ".join(f"'{name}'" for name, other in POLICIES.items() if other.needs_curves)
            raise OptionError(f"Policy '{self.policy}' uses no performance curves; use policy {users} with curves.")
        if self.queue is not None and self.policy != "drs":
            raise OptionError(f"Policy '{self.policy}' has no queueing model; use policy 'drs' for one.")
        if self.alpha is not None and entry.evaluates_changes:
            raise OptionError(
                f"Policy '{self.policy}' averages over its own periods; 'alpha' is for policies without periods."
            )
        if self.profile is not None and not entry.needs_profile:
            users = " or ".join(f"'{name}'" for name, other in POLICIES.items() if other.needs_profile)
            raise OptionError(f"Policy '{self.policy}' uses no profile; use policy {users} with a profile.")
        limits = (self.latency_s, self.max_slots, self.executors)
        if entry.has_latency_target and all(limit is None for limit in limits):
            raise OptionError(
                f"Policy '{self.policy}' requires a latency target, a limit, or both; give latency_s (--latency-ms) "
                "for the cheapest plan that meets the target, and max_slots (--max-slots) or executors (--executors) "
                "as the limit."
            )
        if self.latency_s is not None and not entry.has_latency_target and not any_target:
            users = " or ".join(f"'{name}'" for name, other in POLICIES.items() if other.has_latency_target)
            raise OptionError(f"Policy '{self.policy}' has no latency target; use policy {users} for one.")
        if self.latency_s is None and (self.release_below_s is not None or self.quantile is not None):
            raise OptionError(
                "A release limit and a quantile require a latency target: give latency_s (--latency-ms) as well."
            )

    def _check_values(self) -> None:
        if self.policy is not None and self.policy not in POLICIES:
            raise OptionError(f"There is no policy '{self.policy}'; the policies are {', '.join(POLICIES)}.")
        if self.mode not in ("off", "recommend", "active"):
            raise OptionError(f"There is no mode '{self.mode}'; the modes are off, recommend and active.")
        if self.quantile is not None and self.quantile not in MEASURED_QUANTILES:
            measured = ", ".join(map(str, MEASURED_QUANTILES))
            raise OptionError(f"The quantile {self.quantile:g} of the latency is not measured; use one of {measured}.")
        for name in ("latency_s", "catch_up_s", "drift_s", "max_slots", "windows", "executor_cores"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise OptionError(f"{name} is {value}; it must be a finite number above 0.")
        for name in ("release_below_s", "cooldown_s", "warm_up_s", "thread_s", "replica_s"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < float("inf"):
                raise OptionError(f"{name} is {value}; it must be a finite number, 0 or more.")
        if self.alpha is not None and not 0 <= self.alpha < 1:
            raise OptionError(f"alpha is {self.alpha}; it must be a number from 0 to less than 1.")
        if self.quiet_hours is not None:
            QuietHours.parse(self.quiet_hours)
        if self.executors is not None and not 1 <= self.executors[0] <= self.executors[1]:
            raise OptionError(f"executors is {self.executors}; the smallest number comes first and is at least 1.")

    def _check_no_policy(self) -> None:
        needs_policy = {
            "the maximum number of slots": self.max_slots,
            "the latency target": self.latency_s,
            "the release limit": self.release_below_s,
            "the quantile": self.quantile,
            "the throughput study": self.mst_study,
            "the profile": self.profile,
            "the performance curves": self.curves,
            "the number of executors": self.executors,
            "the adaptation parameters": self.adaptation,
            "the queueing model": self.queue,
            "the smoothing parameter alpha": self.alpha,
            "the quiet hours": self.quiet_hours,
        }
        given = [name for name, value in needs_policy.items() if value is not None]
        if given:
            raise OptionError(
                f"Without a policy nothing uses {', '.join(given)}; choose a policy, or give a latency target or a "
                "limit for policy 'auto'."
            )

    def for_flow(self, flow: Dataflow) -> PolicyOptions:
        """Return these options for a dataflow that has been loaded."""
        if self.profile is None:
            return replace(self, dataflow=flow.name)

        from penstock.study.mst.fingerprint import fingerprint

        return replace(self, dataflow=flow.name, program=fingerprint(flow.without_output()))

    def warning(self, master: str) -> str | None:
        """Return a warning if the policy may use more slots than a local master has."""
        local = re.fullmatch(r"local\[(\d+)\]", master)
        if self.max_slots is None or local is None or int(local[1]) >= self.max_slots:
            return None
        return (
            f"The policy may use {self.max_slots} slots, but {master} has {local[1]}; use local[{self.max_slots}] to "
            "provide all of them."
        )


def create_policy(options: PolicyOptions) -> Policy:
    """Return the policy inside its guards: slot limit, minimum gain, pay-back of the pause, time between changes."""
    from penstock.control.policies.catalogue import PolicyParameters, guarded_policy

    if options.policy is None:
        raise OptionError("No policy was chosen.")
    profile = profile_of(options)
    parameters = PolicyParameters(
        max_slots=options.max_slots,
        latency_s=options.latency_s,
        release_below_s=options.release_below_s,
        quantile=options.quantile,
        queue=options.queue,
        executors=options.executors,
        slots_per_executor=options.executor_cores or 1,
        workers=options.workers,
        catch_up_s=options.catch_up_s,
        capacity=_study_capacity(options),
        adaptation=options.adaptation or AdaptationParameters(),
        fission_costs=FissionCosts(thread_s=options.thread_s, replica_s=options.replica_s),
        profile=profile,
        program_changed=profile is not None and has_changed(profile, options),
        drift_s=options.drift_s,
        curves=None if options.curves is None else curves_at(options.curves),
    )
    hours = None if options.quiet_hours is None else QuietHours.parse(options.quiet_hours)
    return guarded_policy(
        options.policy, parameters, cooldown_s=options.cooldown_s, quiet_hours=hours, zone=options.zone
    )


def profile_of(options: PolicyOptions) -> StoredProfile | None:
    """Return the profile that the options name; None if they name none."""
    if options.profile is None:
        return None

    from penstock.study.stepwise.stored_profile import stored_profile

    profile = stored_profile(local_directory(options.profile), dataflow=options.dataflow)
    if profile.micro_batch != options.micro_batch:
        kinds = {True: "in micro-batches", False: "row by row"}
        raise PenstockError(
            f"'{options.profile}' was profiled on an engine that works {kinds[profile.micro_batch]}, but this one "
            f"works {kinds[options.micro_batch]}; profile again with such an engine."
        )
    return profile


def has_changed(profile: StoredProfile, options: PolicyOptions) -> bool:
    """Return whether the program differs from the profiled one."""
    return None not in (profile.program, options.program) and profile.program != options.program


def profile_remarks(options: PolicyOptions) -> list[str]:
    """Return a remark if the profile belongs to another version of the program."""
    profile = profile_of(options)
    if profile is None or not has_changed(profile, options):
        return []
    return [
        f"The program of '{options.dataflow}' has changed since the profile in '{options.profile}'; the policy "
        "measures it anew while it runs."
    ]


def _study_capacity(options: PolicyOptions) -> tuple[float, ...] | None:
    """Return the rows/s that 1, 2, ... executors sustain by the model of a study; None without a study."""
    if options.mst_study is None or options.executors is None:
        return None

    from penstock.study.mst.model import model_in

    slots_per_executor = options.executor_cores or 1
    model = model_in(
        options.mst_study, options.executors[1], dataflow=options.dataflow, slots_per_executor=slots_per_executor
    )
    return tuple(float(rate) for rate in model.capacity(confidence=0.9))


def default_window_s(policy: str | None) -> float:
    """Return the length of a window on Spark. A policy with periods of its own samples every second."""
    return 1.0 if policy in POLICIES and POLICIES[policy].has_periods else 2.0


def controller_settings(options: PolicyOptions, *, window_s: float, micro_batch: bool) -> Settings:
    from penstock.control.controller import Settings

    return Settings(
        mode=options.mode,
        smoothing=_smoothing(options, window_s),
        micro_batch=micro_batch,
        warm_up_s=options.warm_up_s,
        stale_after_s=max(30.0, 5 * window_s),
        tolerance=_PREDICTIVE_TOLERANCE
        if options.policy is not None and POLICIES[options.policy].sets_executors
        else 0.5,
        max_slots=options.slot_limit,
    )


def _smoothing(options: PolicyOptions, window_s: float) -> Smoothing:
    """Return the mean of `windows` windows, or the exponential average if `alpha` is given.

    A policy with periods has the exponential average over a period.

    An exponential average over n samples has alpha = 1 - 2 / (n + 1): the weights have the same mean age as those of
    the mean of n samples.
    """
    from penstock.measure.smoothing import ExponentialSmoothing, MovingAverage

    if options.policy is not None and POLICIES[options.policy].averages_itself:
        return MovingAverage(min(options.windows, max(1, round(_SHORT_WINDOW_S / window_s))))
    if options.policy is None or not POLICIES[options.policy].has_periods:
        if options.alpha is not None:
            return ExponentialSmoothing(alpha=options.alpha, min_windows=options.windows)
        return MovingAverage(options.windows)
    period_s = (options.adaptation or AdaptationParameters()).period_s
    samples = max(1, math.ceil(period_s / window_s - 1e-9))
    return ExponentialSmoothing(alpha=1.0 - 2.0 / (samples + 1), min_windows=samples)
