"""The options of a policy, shared by `penstock run` and `penstock simulate`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from penstock.api.policy_options import Mode
from penstock.cli.parameters import ABOVE_0, SHARE, Between, Finite, Option, combined
from penstock.control.policies.adaptation_parameters import AdaptationParameters, Variant
from penstock.control.policies.catalogue import POLICIES

_ADAPTATION = "adaptation_"  # prefix of the options of policy organic


def policy_parameters(*, mode: Mode) -> Option:
    """Return a decorator that adds the options; `mode` is the default mode."""
    return combined(
        [
            click.option(
                "--policy",
                type=click.Choice(list(POLICIES)),
                help="Scaling policy.  [default: auto with a latency target or a limit, otherwise none]",
            ),
            click.option(
                "--mode",
                type=click.Choice(["off", "recommend", "active"]),
                default=mode,
                show_default=True,
                help="Make no decisions, record decisions, or record and apply them.",
            ),
            click.option("--latency-ms", type=ABOVE_0, help="Latency target in milliseconds (auto, drs, mst)."),
            click.option(
                "--release-below-ms",
                type=Finite(min=0),
                help="Release slots only below this latency (drs).  [default: half of the target]",
            ),
            click.option(
                "--quantile",
                type=SHARE,
                help="Apply the target to this quantile: 0.5, 0.95 or 0.99.  [default: the mean]",
            ),
            click.option("--max-slots", type=click.IntRange(min=1), help="Largest number of slots to use."),
            click.option("--executors", type=Between(), help="Smallest and largest number of executors, such as 1..6."),
            click.option(
                "--executor-cores",
                type=click.IntRange(min=1),
                help="Cores (slots) per executor.  [default: as in the cluster]",
            ),
            click.option(
                "--cooldown-s",
                type=Finite(min=0),
                default=60.0,
                show_default=True,
                help="Smallest time between two plan changes, and between the start and the first one. Policy auto "
                "adds missing slots sooner.",
            ),
            click.option(
                "--quiet-hours",
                metavar="HH:MM-HH:MM",
                help="Hours of each day without a plan change, in local time. A simulation begins at midnight.",
            ),
            click.option(
                "--windows",
                type=click.IntRange(min=1),
                default=5,
                show_default=True,
                help="Number of windows to average.",
            ),
            click.option(
                "--alpha",
                type=Finite(min=0),
                help="Smooth exponentially with this weight of earlier windows, below 1.  [default: mean of the "
                "windows]",
            ),
            click.option(
                "--queue",
                type=click.Choice(["mmk", "gigk"]),
                help="Queueing model of a station (drs).  [default: mmk row by row, batches on Spark]",
            ),
            click.option(
                "--warm-up-s",
                type=Finite(min=0),
                default=15.0,
                show_default=True,
                help="Time after the start and after a plan change whose windows are not used.",
            ),
            click.option(
                "--catch-up-s",
                type=ABOVE_0,
                default=120.0,
                show_default=True,
                help="Time in which a backlog must be processed (mst).",
            ),
            click.option(
                "--mst",
                "mst_study",
                type=click.Path(path_type=Path),
                help="Directory of a study by 'penstock mst measure' (mst).",
            ),
            *_adaptation_parameters(),
            click.option(
                "--thread-ms",
                type=Finite(min=0),
                default=0.0,
                show_default=True,
                help="Time to pass a row to another pipeline (fission-model).",
            ),
            click.option(
                "--replica-ms",
                type=Finite(min=0),
                default=0.0,
                show_default=True,
                help="Additional time per row with 2 replicas; twice as much with 4 (fission-model).",
            ),
            click.option(
                "--profile",
                type=click.Path(path_type=Path),
                help="Directory of a study by 'penstock profile' (stepwise).",
            ),
            click.option(
                "--drift-s",
                type=ABOVE_0,
                default=60.0,
                show_default=True,
                help="Time above a threshold after which the data counts as changed (stepwise).",
            ),
            click.option(
                "--curves",
                type=click.Path(path_type=Path),
                help="Directory of a study by 'penstock curves', or a JSON file with curves (curves).",
            ),
        ]
    )


def _adaptation_parameters() -> list[Option]:
    """Return the options of policy organic. An option that is not given has the default of `AdaptationParameters`."""
    defaults = AdaptationParameters()

    def option(name: str, text: str, **settings: Any) -> Option:
        default = getattr(defaults, name)
        shown = "only the slots limit it" if default is None else default
        return click.option(
            "--" + name.replace("_", "-"), _ADAPTATION + name, help=f"{text} (organic).  [default: {shown}]", **settings
        )

    return [
        option("variant", "Kinds of change and their order", type=click.Choice([variant.value for variant in Variant])),
        option("bottleneck", "Utilisation from which a pipeline is a bottleneck", type=SHARE),
        option("split_gain", "Smallest predicted gain for which a pipeline is split", type=Finite(min=0)),
        option("throughput_increase", "Increase of throughput that a change must exceed", type=Finite(min=0)),
        option("load_change", "Relative difference that counts as another load", type=Finite(min=0)),
        option("stable_periods", "Periods without a change before adaptation stops", type=click.IntRange(min=1)),
        option("max_replicas", "Largest number of replicas of an operator", type=click.IntRange(min=1)),
        click.option(
            "--strict", _ADAPTATION + "strict", is_flag=True, help="Decide as the paper, without extensions (organic)."
        ),
    ]


def api_parameters(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options as parameters of the Python API.

    It has seconds instead of milliseconds, and one value for the parameters of policy organic.
    """
    given = {
        name.removeprefix(_ADAPTATION): options[name]
        for name in options
        if name.startswith(_ADAPTATION) and options[name] not in (None, False)
    }
    if "variant" in given:
        given["variant"] = Variant(given["variant"])
    options = {name: value for name, value in options.items() if not name.startswith(_ADAPTATION)}
    if given:
        options["adaptation"] = AdaptationParameters(**given)
    in_s = {
        name.removesuffix("_ms") + "_s": None if value is None else value / 1000
        for name, value in options.items()
        if name.endswith("_ms")
    }
    return {name: value for name, value in options.items() if not name.endswith("_ms")} | in_s
