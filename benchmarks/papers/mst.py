"""Tables and figures of Imai, Patterson and Varela on maximum sustainable throughput (MST), from their measurements.

Chosen before any result was computed, because the paper omits the values:

- The samples on 25, 26 and 72 VMs that validated the models were not published. A count that was not measured is
  replaced by the next larger measured one.
- Figure 11 used new samples, which were not published either. The samples of `samples.tsv` take their place.
- The 500 hours of the load are not named. They are the 500 consecutive hours with the most requests. The whole trace
  (2,089 hours) is computed as well.
- Elastic policies begin with the VMs of their first interval, and a VM is paid from its order to its release.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from benchmarks.papers.mst_data import (
    COUNTS,
    MAX_VMS,
    PHASE_1,
    PHASE_2,
    TITLES,
    TRAIN,
    busiest,
    hourly,
    published_samples,
    requests_per_hour,
)
from benchmarks.papers.results import Figure, ResultRow
from penstock.models.mst.curve_families import LINEAR, MEAN, MODEL1, MODEL2, PAPER_FAMILIES, CurveFamily
from penstock.models.mst.curve_selection import CurveSelection, select_curve
from penstock.models.mst.fitted_curve import FittedCurve, fit_curve
from penstock.models.mst.least_squares import Weighting, absolute_rmse, mape
from penstock.models.mst.samples import ThroughputSamples
from penstock.models.mst.training_subset import best_training_subset
from penstock.models.mst.validation_counts import first_divergences
from penstock.planning.elastic_policies import least_over_provisioning, over_provisioned, static, with_ground_truth
from penstock.planning.elastic_schedule import ElasticOutcome, ElasticSchedule, RentalTerms, ground_truth, simulate
from penstock.planning.trace import Trace

TITLE = "Maximum sustainable throughput: results"
INTRODUCTION = (
    "[Maximum sustainable throughput](mst.md) explains the method and the differences. The measurements of the authors "
    "are not part of this repository; `benchmarks/papers/mst_data.py` says where they are read from."
)
TABLE_1 = {
    5: ((2, 4, 5), 0.2864),
    6: ((2, 4, 5), 0.2864),
    7: ((2, 4, 5, 7), 0.1394),
    8: ((2, 4, 5, 7), 0.1394),
    12: ((2, 4, 5, 7), 0.1394),
    16: ((6, 8, 16), 0.1263),
    24: ((3, 4, 6, 8, 24), 0.0813),
    32: ((3, 4, 6, 8, 24), 0.0813),
}
TABLE_2 = {
    "grep": ((0.01617, 1.04913, 0.0, 0.0), (0.63117, 0.74233, 0.00063)),
    "rcount": ((0.11748, 2.75500, 0.0, 0.0), (0.16593, 0.27683, 0.00322)),
    "visitor": ((0.02050, 1.67805, 0.0, 0.0), (0.01615, 0.56212, 0.00160)),
    "pv": ((0.03512, 1.61983, 0.0, 0.0), (0.27180, 0.49439, 0.00089)),
    "clean": ((0.11039, 1.62948, 0.0, 0.00004), (0.12286, 0.49693, 0.01233)),
    "vhtree": ((0.01958, 0.0, 0.00005, 0.0), (50.69306, 0.0, 0.00394)),
}
# Policy -> cost per hour and violations in percent, in the order of `PHASE_2`.
TABLE_3 = {
    "static peak": ((5.3, 0.0), (11.9, 0.0), (11.4, 0.0), (11.5, 0.0), (1.6, 0.0), (0.1, 0.0)),
    "static average": ((2.4, 44.6), (2.8, 44.6), (5.6, 44.8), (6.6, 45.6), (0.8, 28.4), (0.1, 0.0)),
    "ground truth": ((2.482, 0.0), (3.651, 0.0), (5.678, 0.0), (5.991, 0.0), (0.714, 0.0), (0.1, 0.0)),
    "+0%": ((2.808, 6.14), (5.643, 1.46), (5.876, 34.637), (5.716, 49.517), (0.712, 28.48), (0.1, 0.0)),
    "+5%": ((2.998, 0.077), (5.815, 0.01), (6.193, 0.29), (6.051, 35.493), (0.813, 4.05), (0.2, 0.0)),
    "+10%": ((3.137, 0.637), (5.95, 0.003), (6.451, 0.107), (6.333, 25.453), (0.831, 4.05), (0.2, 0.0)),
    "+20%": ((3.41, 0.007), (6.2, 0.003), (6.932, 0.03), (6.872, 0.097), (0.896, 4.013), (0.2, 0.0)),
    "<1% violations": ((2.908, 0.087), (5.723, 0.01), (6.142, 0.33), (6.825, 0.1), (1.019, 1.0), (0.1, 0.0)),
}
TABLE_3_PERCENT = {"grep": 1, "rcount": 1, "visitor": 4, "pv": 19, "clean": 34, "vhtree": 0}
FIGURE_8 = {"wc": "Model 1 fits better", "sol": "both fit equally well", "rsort": "Model 2 fits better"}
FIGURE_9 = {
    "grep": "Model 1 captures the bottleneck, Model 2 fails",
    "rcount": "Model 1 captures the bottleneck",
    "visitor": "almost linear; Model 2 fits",
    "pv": "almost linear; Model 2 fits",
    "clean": "both fit equally well",
    "vhtree": "both fit equally well",
}
FIGURE_10 = {
    "grep": "Model 1 (26 VMs)",
    "rcount": "Model 1 (25 and 72 VMs)",
    "visitor": "Model 2 (25 VMs)",
    "pv": "Model 2 (25 VMs)",
    "clean": "Model 2 (no validation; training errors almost equal)",
    "vhtree": "Model 2 (no validation; training errors almost equal)",
}
COMPARED: tuple[CurveFamily, ...] = (MODEL1, MODEL2, LINEAR, MEAN)
SHOWN = ("grep", "rcount", "pv")  # figure 12
TERMS = RentalTerms(price_per_h=0.10, delay_s=60.0, max_vms=MAX_VMS)

Samples = Mapping[str, ThroughputSamples]


def _row(figure: str, subject: str, paper: str, penstock: str) -> ResultRow:
    return ResultRow(
        figure=f"{figure.replace('-', ' ')}: {subject}",
        paper=paper,
        penstock=penstock,
        engine="models, measurements of the authors",
        command=f"python -m benchmarks.papers mst --figure {figure}",
    )


@cache
def measured() -> Samples:
    return published_samples()


# ---- prediction


def fitted(samples: ThroughputSamples, family: CurveFamily) -> FittedCurve:
    """Return the model as the paper fits it: to the single samples of `TRAIN`, by their absolute errors."""
    return fit_curve(family, samples.only(TRAIN), weighting=Weighting.ABSOLUTE)


def validation_counts(samples: ThroughputSamples) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the counts of Algorithm 1, and the measured ones that take their place."""
    models = [fitted(samples, family) for family in PAPER_FAMILIES]
    wanted = first_divergences(models, trained=TRAIN, max_vms=MAX_VMS)
    return tuple(wanted), tuple(sorted({min(count for count in COUNTS if count >= point) for point in wanted}))


def selected(samples: ThroughputSamples, families: tuple[CurveFamily, ...] = PAPER_FAMILIES) -> CurveSelection:
    """Return the models and their errors at the validation counts, or at the training counts if there are none."""
    _, points = validation_counts(samples)
    return select_curve(
        samples.only([*TRAIN, *points]),
        validation=points,
        families=families,
        weighting=Weighting.ABSOLUTE,
        refit=False,
        choose="training",
    )


def errors_beyond(samples: ThroughputSamples, families: tuple[CurveFamily, ...] = COMPARED) -> dict[str, float]:
    """Return the error of each model in percent (MAPE) at all counts that were not trained on."""
    test = [count for count in samples.vms if count not in TRAIN]
    return {family.name: mape(fitted(samples, family).predict(test), samples.only(test)) for family in families}


def fit_errors(samples: ThroughputSamples) -> dict[str, float]:
    """Return the RMSE of each model of the paper at all measured counts, as a share of the largest sample."""
    top = max(max(values) for values in samples.throughput)
    return {
        family.name: absolute_rmse(fitted(samples, family).predict(samples.vms), samples) / top
        for family in PAPER_FAMILIES
    }


def prediction_errors(samples: ThroughputSamples) -> dict[str, float]:
    """Return the errors of figure 11 in percent (MAPE), at the counts for training and validation.

    "own mean" is the mean of the samples at each count, which no prediction of a single number can improve much.
    """
    _, points = validation_counts(samples)
    judged = samples.only([*TRAIN, *points])
    errors = {"selected": mape(selected(samples).chosen.predict(judged.vms), judged)}
    errors |= {family.name: mape(fitted(samples, family).predict(judged.vms), judged) for family in (LINEAR, MEAN)}
    return errors | {"own mean": mape(judged.means(), judged)}


def table_1() -> list[ResultRow]:
    rows = []
    for max_vms, (vms, rmse) in TABLE_1.items():
        best = best_training_subset([measured()[app] for app in PHASE_1], max_vms=max_vms)
        ours = f"{{{', '.join(map(str, best.vms))}}}, {best.rmse:.4f} ({best.subsets} subsets)"
        paper = f"{{{', '.join(map(str, vms))}}}, {rmse:.4f}"
        rows.append(_row("table-1", f"best subset and RMSE for at most {max_vms} VMs", paper, ours))
    return rows


def table_2() -> list[ResultRow]:
    rows = []
    for app, published in TABLE_2.items():
        for family, weights in zip(PAPER_FAMILIES, published, strict=True):
            ours = ", ".join(f"{weight:.5f}" for weight in fitted(measured()[app], family).weights)
            paper = ", ".join(f"{weight:.5f}" for weight in weights)
            rows.append(_row("table-2", f"{TITLES[app]}, weights of {family.name}", paper, ours))
    return rows


def _both(app: str) -> str:
    errors = fit_errors(measured()[app])
    return ", ".join(f"{name} {error:.3f}" for name, error in errors.items())


def figure_8() -> list[ResultRow]:
    return [
        _row("8", f"{TITLES[app]}, RMSE / largest sample over all counts", text, _both(app))
        for app, text in FIGURE_8.items()
    ]


def figure_9() -> list[ResultRow]:
    return [
        _row("9", f"{TITLES[app]}, RMSE / largest sample over all counts", text, _both(app))
        for app, text in FIGURE_9.items()
    ]


def figure_10() -> list[ResultRow]:
    rows = []
    for app, text in FIGURE_10.items():
        samples = measured()[app]
        wanted, points = validation_counts(samples)
        selection = selected(samples, COMPARED)
        where = f"points {wanted}, samples {points}" if points else "no points; training errors"
        errors = ", ".join(f"{name} {error:.3f}" for name, error in selection.errors.items())
        ours = f"{selected(samples).chosen.name} ({where}): {errors}"
        rows.append(_row("10", f"{TITLES[app]}, selected model and RMSE in MB/s", text, ours))
    return rows


def figure_11() -> list[ResultRow]:
    rows = []
    worst: dict[str, float] = {}
    for app in PHASE_2:
        errors = prediction_errors(measured()[app])
        worst = {name: max(error, worst.get(name, 0.0)) for name, error in errors.items()}
        rows.append(
            _row("11", f"{TITLES[app]}, MAPE in percent", "at most 15.8; own mean at most 6.9", _errors(errors))
        )
    rows.append(_row("11", "largest MAPE in percent", "selected 15.8, own mean 6.9", _errors(worst)))
    for app in PHASE_2:
        text = _errors(errors_beyond(measured()[app]))
        rows.append(_row("11", f"{TITLES[app]}, MAPE in percent at all counts not trained on", "-", text))
    return rows


def _errors(errors: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {error:.1f}" for name, error in errors.items())


# ---- elastic scheduling


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduled:
    """All policies on one load. `percent` is the over-provisioning of the last one."""

    outcomes: dict[str, ElasticOutcome]
    schedules: dict[str, ElasticSchedule]
    percent: int

    @property
    def saving(self) -> float:
        """Return the share of the cost of the static peak that the last policy saves."""
        return 1.0 - self.outcomes["<1% violations"].cost_per_h / self.outcomes["static peak"].cost_per_h


def scheduled(samples: ThroughputSamples, trace: Trace, family: CurveFamily) -> Scheduled:
    """Apply the policies of table 3 with this model."""
    truth = ground_truth(samples, MAX_VMS)
    capacity = fitted(samples, family).predict(range(1, MAX_VMS + 1))
    percent = least_over_provisioning([trace], capacity, truth, TERMS, violations=0.01)
    schedules = {
        "static peak": static("static peak", trace, truth, max(trace.rates)),
        "static average": static("static average", trace, truth, float(np.mean(trace.rates))),
        "ground truth": with_ground_truth(trace, truth),
        **{f"+{extra}%": over_provisioned(trace, capacity, extra) for extra in (0, 5, 10, 20)},
        "<1% violations": over_provisioned(trace, capacity, percent),
    }
    outcomes = {name: simulate(trace, schedule, truth, TERMS) for name, schedule in schedules.items()}
    return Scheduled(outcomes=outcomes, schedules=schedules, percent=percent)


@cache
def on_the_load(app: str, *, whole: bool) -> Scheduled:
    requests = requests_per_hour()
    family, peak = PHASE_2[app]
    return scheduled(measured()[app], hourly(requests if whole else busiest(requests), peak), family)


def _outcome(outcome: ElasticOutcome) -> str:
    return f"{outcome.cost_per_h:.3f}, {100 * outcome.violations:.3f} %"


def table_3() -> list[ResultRow]:
    rows = []
    for number, app in enumerate(PHASE_2):
        both = {"busiest 500 h": on_the_load(app, whole=False), "whole trace": on_the_load(app, whole=True)}
        for policy, published in TABLE_3.items():
            cost, violations = published[number]
            ours = "; ".join(f"{name}: {_outcome(load.outcomes[policy])}" for name, load in both.items())
            subject = f"{TITLES[app]}, {policy}, $/h and violations"
            rows.append(_row("table-3", subject, f"{cost:.3f}, {violations:.3f} %", ours))
        ours = "; ".join(f"{name}: {load.percent} %" for name, load in both.items())
        subject = f"{TITLES[app]}, over-provisioning for less than 1 % violations"
        rows.append(_row("table-3", subject, f"{TABLE_3_PERCENT[app]} %", ours))
    return rows


def savings(*, whole: bool) -> dict[str, float]:
    """Return the saving of each application that scales at all."""
    return {app: on_the_load(app, whole=whole).saving for app in PHASE_2 if app != "vhtree"}


def saving() -> list[ResultRow]:
    rows = []
    for title, whole in (("busiest 500 h", False), ("whole trace", True)):
        each = savings(whole=whole)
        text = ", ".join(f"{TITLES[app]} {100 * share:.0f} %" for app, share in each.items())
        subject = f"least saving over static peak at less than 1 % violations, {title}"
        rows.append(_row("saving", subject, "36 %", f"{100 * min(each.values()):.0f} % ({text})"))
    return rows


def figure_12() -> list[ResultRow]:
    paper = {
        "grep": "+0% and <1% follow the ground truth closely",
        "rcount": "+0% is at 128 VMs where the ground truth has 43; flat at the peaks",
        "pv": "+0% is often below the load",
    }
    rows = []
    for app in SHOWN:
        load = on_the_load(app, whole=False)
        for policy in ("ground truth", "+0%", "<1% violations"):
            vms = load.schedules[policy].vms
            ours = (
                f"mean {vms.mean():.1f}, highest {vms.max()} VMs, {100 * np.mean(vms == MAX_VMS):.1f} % of hours at 128"
            )
            ours += f", below the load {100 * load.outcomes[policy].violations:.1f} % of the time"
            rows.append(_row("12", f"{TITLES[app]}, {policy}, busiest 500 h", paper[app], ours))
    return [*rows, _row("12", "Rolling Count at 7.22 MB/s, ground truth and +0%", "43 and 128 VMs", _at_7_22())]


def _at_7_22() -> str:
    samples = measured()["rcount"]
    capacity = fitted(samples, MODEL1).predict(range(1, MAX_VMS + 1))
    load = Trace(rates=(7.22,), interval_s=3600.0)
    true = with_ground_truth(load, ground_truth(samples, MAX_VMS)).vms[0]
    return f"{true} and {over_provisioned(load, capacity, 0).vms[0]} VMs"


FIGURES: dict[str, Figure] = {
    "table-1": table_1,
    "8": figure_8,
    "table-2": table_2,
    "9": figure_9,
    "10": figure_10,
    "11": figure_11,
    "table-3": table_3,
    "saving": saving,
    "12": figure_12,
}
