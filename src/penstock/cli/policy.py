"""The policy that `penstock run` is asked for, with its guards, as a controller of the loop."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from penstock.cli.given import ABOVE_0, SHARE, Between, Finite

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.control.controller import Settings
    from penstock.control.policy import Policy

NAMES = ("drs", "threshold", "stela", "ds2")  # that share out the slots there are
ELASTIC = ("mst",)  # that change how many there are
QUANTILES = (0.5, 0.95, 0.99)  # of the latency, that windows have
FORESIGHT = 0.9  # of the rows promised: executors for what is to come bring nothing until it comes


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """As given on the command line."""

    policy: str | None
    mode: Literal["off", "recommend", "active"]
    max_slots: int | None
    latency_ms: float | None
    release_below_ms: float | None
    quantile: float | None
    cooldown_s: float
    windows: int
    warm_up_s: float
    queue: Literal["mmk", "gigk"] = "mmk"  # of engines that work row by row
    executors: tuple[int, int] | None = None
    slots_each: int | None = None
    catch_up_s: float = 120.0
    mst_study: Path | None = None
    workers: int | None = None  # of the cluster; None: as many as executors may be had
    dataflow: str = ""  # whose policy it is

    @property
    def most_slots(self) -> int | None:
        """That executors may be had for; None: what there is stays."""
        return None if self.executors is None else self.executors[1] * (self.slots_each or 1)

    def within(self, room: int) -> Asked:
        """More executors than a cluster has room for would only be waited for."""
        assert self.executors is not None
        least, most = self.executors
        return replace(self, executors=(min(least, room), min(most, room)))

    def check(self, *, any_target: bool = False) -> None:
        """`any_target`: a latency target may be given for a policy that knows none, to count what misses it."""
        if self.policy is None:
            given = (
                self.max_slots,
                self.latency_ms,
                self.release_below_ms,
                self.quantile,
                self.mst_study,
                self.executors,
            )
            if any(one is not None for one in given):
                raise click.UsageError("--max-slots, --latency-ms, --executors and the like go with --policy")
            return
        if self.policy == "mst" and self.executors is None:
            raise click.UsageError("--policy mst takes --executors LEAST..MOST: how many it may use")
        if self.policy != "mst" and self.mst_study is not None:
            raise click.UsageError(f"--mst goes with --policy mst, not with {self.policy}")
        if self.policy == "drs" and (self.max_slots is None) == (self.latency_ms is None):
            raise click.UsageError(
                "--policy drs takes --max-slots K (least latency within K slots) or --latency-ms T (fewest slots "
                "within T)"
            )
        if self.policy != "drs" and self.latency_ms is not None and not any_target:
            raise click.UsageError(f"--latency-ms goes with --policy drs; {self.policy} knows no latency target")
        if self.latency_ms is None and (self.release_below_ms is not None or self.quantile is not None):
            raise click.UsageError("--release-below-ms and --quantile go with --latency-ms")
        if self.quantile is not None and self.quantile not in QUANTILES:
            known = ", ".join(map(str, QUANTILES))
            raise click.UsageError(f"--quantile {self.quantile:g} of the latency is not measured; give one of {known}")


def too_few(asked: Asked, master: str) -> str | None:
    """What to say where more slots may be used than a local master has."""
    local = re.fullmatch(r"local\[(\d+)\]", master)
    if asked.max_slots is None or local is None or int(local[1]) >= asked.max_slots:
        return None
    return f"--max-slots {asked.max_slots}, but {master} has {local[1]}; give --master local[{asked.max_slots}] for all"


def options(*, mode: str = "recommend") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """All of them, for `run` and for whatever else runs a policy; `mode` is the default."""

    def with_options(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(_options(mode)):
            command = option(command)
        return command

    return with_options


def _options(mode: str) -> list[Callable[[Callable[..., Any]], Callable[..., Any]]]:
    return [
        click.option("--policy", type=click.Choice(NAMES + ELASTIC), help="Who decides.  [nobody]"),
        click.option(
            "--mode",
            type=click.Choice(["off", "recommend", "active"]),
            default=mode,
            show_default=True,
            help="Whether decisions are made, and whether they are carried out.",
        ),
        click.option("--max-slots", type=click.IntRange(min=1), help="Slots that may be used."),
        click.option("--latency-ms", type=ABOVE_0, help="The target (T_max)."),
        click.option("--release-below-ms", type=Finite(min=0), help="T_min.  [half of the target]"),
        click.option("--quantile", type=SHARE, help="The target is on this quantile (0.5, 0.95 or 0.99)."),
        click.option(
            "--cooldown",
            "cooldown_s",
            type=Finite(min=0),
            default=60.0,
            show_default=True,
            help="Seconds between changes (T_ra).",
        ),
        click.option("--windows", type=click.IntRange(min=1), default=5, show_default=True, help="That are averaged."),
        click.option(
            "--warm-up",
            "warm_up_s",
            type=Finite(min=0),
            default=15.0,
            show_default=True,
            help="Seconds after a change that are not measured.",
        ),
        click.option("--executors", type=Between(), help="How many a run may have on a cluster, such as 1..6."),
        click.option("--slots-each", type=click.IntRange(min=1), help="Of an executor; a --cluster knows it."),
        click.option(
            "--catch-up",
            "catch_up_s",
            type=ABOVE_0,
            default=120.0,
            show_default=True,
            help="Seconds in which a backlog is to be gone (mst).",
        ),
        click.option("--mst", "mst_study", type=click.Path(path_type=Path), help="What 'mst measure' left (mst)."),
    ]


def policy_of(asked: Asked) -> Policy:
    """Guards around the policy: bounds, a dead band, a pause that pays, time between changes."""
    from penstock.control.guards import Bounded, Cooldown, Hysteresis, PayBack
    from penstock.control.policies.drs import Drs
    from penstock.control.policies.drs.problem import DrsSettings, FewestSlots, LeastLatency
    from penstock.control.policies.ds2 import Ds2
    from penstock.control.policies.elastic import Elastic
    from penstock.control.policies.stela import Stela
    from penstock.control.policies.threshold import Threshold

    inner: Policy
    match asked.policy:
        case "threshold":
            inner = Threshold()
        case "stela":
            inner = Stela(attempts=asked.workers or (1 if asked.executors is None else asked.executors[1]))
        case "ds2":
            inner = Ds2()
        case "mst":
            inner = _mst(asked)
        case _ if asked.latency_ms is not None:
            below = asked.release_below_ms
            goal = FewestSlots(
                max_s=asked.latency_ms / 1000,
                min_s=None if below is None else below / 1000,
                quantile=asked.quantile,
                aim=0.8,  # a plan for the very target, or for no row more than comes, would be undone by the next gust
                room=0.05,
            )
            inner = Drs(DrsSettings(goal=goal, queue=asked.queue))
        case _:
            inner = Drs(DrsSettings(goal=LeastLatency(max_slots=asked.max_slots), queue=asked.queue))
    if asked.executors is not None and asked.policy in NAMES:
        least, most = asked.executors
        inner = Elastic(inner, slots_each=asked.slots_each or 1, least=least, most=most)
    worth_it = PayBack(Hysteresis(inner, gain=0.05), within_s=600.0)
    return Cooldown(Bounded(worth_it, max_slots=asked.max_slots), seconds=asked.cooldown_s)


def settings_of(asked: Asked, *, every_s: float, micro_batch: bool) -> Settings:
    from penstock.control.controller import Settings
    from penstock.measure.smoothing import MovingAverage

    return Settings(
        mode=asked.mode,
        smoothing=MovingAverage(asked.windows),
        micro_batch=micro_batch,
        warm_up_s=asked.warm_up_s,
        stale_after_s=max(30.0, 5 * every_s),
        tolerance=FORESIGHT if asked.policy in ELASTIC else 0.5,
        max_slots=asked.most_slots,
    )


def _mst(asked: Asked) -> Policy:
    """By the model of a study where there is one, otherwise by what the load shows."""
    from penstock.control.policies.mst import Mst, MstSettings
    from penstock.control.policies.mst.observed import ObservedMst

    assert asked.executors is not None
    least, most = asked.executors
    slots_each = asked.slots_each or 1
    if asked.mst_study is None:
        return ObservedMst(slots_each=slots_each, least=least, most=most, catch_up_s=asked.catch_up_s)

    from penstock.study.mst.model import model_in

    capacity = model_in(asked.mst_study, most, dataflow=asked.dataflow, slots_each=slots_each).capacity(confidence=0.9)
    return Mst(
        MstSettings(
            capacity=tuple(float(rate) for rate in capacity),
            slots_each=slots_each,
            least=least,
            most=most,
            catch_up_s=asked.catch_up_s,
        )
    )
