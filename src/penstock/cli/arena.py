"""penstock arena: all policies on the same applications, load and seed, and one league table."""

from __future__ import annotations

import click

from penstock.cli.policy import NAMES
from penstock.cli.simulate import MODES

APPLICATIONS = ("video", "patterns")


@click.command()
@click.option("--app", "apps", type=click.Choice(APPLICATIONS), multiple=True, help="Which; may be repeated.  [all]")
@click.option("--slots", type=click.IntRange(min=3), default=22, show_default=True, help="To be spread.")
@click.option("--engine", "engine_mode", type=click.Choice(MODES[:2]), default=MODES[0], show_default=True)
@click.option("--windows", type=click.IntRange(min=1), default=60, show_default=True, help="Each policy has.")
@click.option(
    "--every", "every_s", type=click.FloatRange(min=1), default=30.0, show_default=True, help="A window, in s."
)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="JSON instead of tables.")
def command(
    apps: tuple[str, ...], slots: int, engine_mode: str, windows: int, every_s: float, seed: int, as_json: bool
) -> None:
    """Let the policies compete from one replica each: how near the best of all plans they come, and at what cost.

    The best plan is found by simulating all of them, with the same rows.

    \b
    Example:
      penstock arena
      penstock arena --app video --slots 16 --json
    """
    import msgspec
    from rich.console import Console
    from rich.progress import track
    from rich.table import Table

    from penstock.cli import policy
    from penstock.control.arena import compete, every_plan, league, trial
    from penstock.control.scenarios import SCENARIOS
    from penstock.control.shape import Shape
    from penstock.engines.simulated import SimulatedEngine
    from penstock.plan import default_plan

    micro_batch = engine_mode == "micro-batch"
    out: dict[str, object] = {}
    for app in apps or APPLICATIONS:
        flow, behaviour = SCENARIOS[app]()
        shape = Shape.of(flow)
        start = default_plan(flow, slots=slots, replicas={region.name: 1 for region in shape.regions})
        judge = trial(flow, behaviour, engine_mode, seed=seed, rows=40_000)
        plans = list(every_plan(shape, start, slots))
        progress = Console(stderr=True)
        tried = [(judge(plan), plan) for plan in track(plans, description=f"{app}: all plans", console=progress)]
        best_s, best = min(tried, key=lambda one: one[0])
        standings = []
        for name in track(NAMES, description=f"{app}: policies", console=progress):
            asked = policy.Asked(
                policy=name,
                mode="active",
                max_slots=slots,
                sojourn_ms=None,
                release_below_ms=None,
                quantile=None,
                cooldown_s=2 * every_s,
                windows=4,
                warm_up_s=every_s,
            )
            engine = SimulatedEngine(flow, behaviour, plan=start, mode=engine_mode, seed=seed + 1)
            standings.append(
                compete(
                    policy.policy_of(asked),
                    lambda engine=engine: (engine, engine.clock),  # type: ignore[misc]
                    windows=windows,
                    every_s=every_s,
                    settings=policy.settings_of(asked, every_s=every_s, micro_batch=micro_batch),
                    judge=judge,
                    best_s=best_s,
                    max_s=2 * best_s,
                )
            )
        table = league(standings)
        out[app] = {"best": dict(best.replicas), "best_sojourn_s": best_s, "plans": len(plans), "league": table}
        if not as_json:
            ratio = ":".join(str(best.replicas[region.name]) for region in shape.regions)
            drawn = Table(
                "policy", "share of best", "changes to reach it", "changes", "slot-hours", "violations", "paused",
                title=f"{app}: best of {len(plans)} plans {ratio}, {best_s:.3g} s", title_justify="left",
            )  # fmt: skip
            for one in table:
                reached = "-" if one.rounds is None else str(one.rounds)
                hours = f"{one.slot_seconds / 3600:.1f}"
                row = (one.policy, f"{one.share:.1%}", reached, str(one.changes), hours, str(one.violations))
                drawn.add_row(*row, f"{one.pause_s:.0f} s")
            Console().print(drawn)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(out)).decode())
