"""Pictures of MST curves with their intervals, and of an elastic schedule."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np

from penstock.dataflow.errors import PenstockError
from penstock.models.mst.prediction import MstModel
from penstock.models.mst.samples import ThroughputSamples
from penstock.planning.elastic_comparison import ElasticComparison
from penstock.planning.trace import Trace

mpl.use("Agg")  # a file is written; no screen is needed
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

BLUE, ORANGE, GREY = "#2b6cb0", "#c05621", "#718096"


class PlotError(PenstockError):
    """The picture cannot be written."""


def plot_mst(
    models: Sequence[MstModel], samples: Sequence[ThroughputSamples], path: Path, *, level: float = 0.9
) -> None:
    """One panel an application: samples, the chosen curve, the interval in which a new sample falls."""
    columns = min(3, len(models))
    rows = math.ceil(len(models) / columns)
    figure, panels = plt.subplots(
        rows, columns, figsize=(4.6 * columns, 3.4 * rows), squeeze=False, layout="constrained"
    )
    for panel in panels.flat[len(models) :]:
        panel.set_visible(False)
    for panel, model, measured in zip(panels.flat, models, samples, strict=False):
        counts = np.arange(1, model.max_vms + 1)
        predictions = model.predict([int(count) for count in counts], level=level)
        low, high = [p.low for p in predictions], [p.high for p in predictions]
        panel.fill_between(counts, low, high, color=BLUE, alpha=0.18, lw=0, label=f"{level:.0%} of new samples")
        panel.plot(counts, model.curve, color=BLUE, lw=1.8, label=f"MST, {model.selection.chosen.name}")
        validated = set(model.selection.validated)
        for held, colour, label in ((False, "black", "to fit"), (True, ORANGE, "to choose the model")):
            points = [
                (m, y)
                for m, values in zip(measured.vms, measured.throughput, strict=True)
                for y in values
                if (m in validated) is held
            ]
            if points:
                panel.plot(*zip(*points, strict=True), ".", color=colour, ms=5, label=f"samples {label}")
        panel.set_title(measured.app, fontsize=11)
        # A heavy tail of the interval must not flatten the curve that it belongs to.
        top = max(max(max(values) for values in measured.throughput), float(model.curve.max()))
        panel.set_ylim(0, min(1.05 * max(high), 1.7 * top))
        panel.set_xlim(0, model.max_vms * 1.02)
        panel.set_xlabel("VMs")
        panel.set_ylabel("throughput")
        panel.legend(fontsize=7.5, loc="best", frameon=False)
        _clean(panel)
    _save(figure, path)


def plot_elastic(trace: Trace, comparison: ElasticComparison, path: Path) -> None:
    """Above: load and the true MST of the VMs rented; below: the VMs. For the paper's last policy and ours."""
    hours = np.arange(len(trace.rates)) * trace.interval_s / 3600
    figure, (above, below) = plt.subplots(
        2, 1, figsize=(11, 6.4), sharex=True, layout="constrained", height_ratios=(3, 2)
    )
    above.fill_between(hours, trace.array(), step="post", color=GREY, alpha=0.35, lw=0, label="load")
    theirs, ours = comparison.schedules[-2], comparison.schedules[-1]
    for schedule, colour, width in ((theirs, ORANGE, 1.0), (ours, BLUE, 1.2)):
        capacity = comparison.truth[schedule.vms - 1]
        above.step(hours, capacity, where="post", color=colour, lw=width, label=f"MST: {schedule.policy}")
        outcome = next(o for o in comparison.outcomes if o.policy == schedule.policy)
        label = f"{schedule.policy}: {outcome.cost_per_h:.3f}/h, {outcome.violations:.2%} violations"
        below.step(hours, schedule.vms, where="post", color=colour, lw=width, label=label)
    for panel in (above, below):
        panel.axvline(hours[comparison.judged_from], color="black", lw=0.9, ls="--")
        _clean(panel)
    above.set_title(f"{comparison.app}: parameters chosen left of the dashed line, judged right of it", fontsize=11)
    above.set_ylabel("rate")
    above.set_ylim(0, None)
    below.set_ylabel("VMs")
    below.set_ylim(0, None)
    below.set_xlabel("hours")
    below.set_xlim(hours[0], hours[-1])
    above.legend(fontsize=8, loc="upper left", frameon=False)
    below.legend(fontsize=8, loc="upper left", frameon=False)
    _save(figure, path)


def _clean(panel: Axes) -> None:
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(alpha=0.25, lw=0.6)


def _save(figure: Figure, path: Path) -> None:
    try:
        figure.savefig(path, dpi=130, format=path.suffix[1:].lower())
    except OSError as error:
        raise PlotError(
            f"the plot cannot be written to {path}: {error.strerror}; give a file in a folder that exists"
        ) from None
    finally:
        plt.close(figure)
