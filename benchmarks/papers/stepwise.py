"""Figures 11 to 14 of Liu et al., "A Stepwise Auto-Profiling Method", ACM TAAS 12(4), 2017, in simulation.

`storm_flows` describes the dataflows, their calibration, and the values that the paper omits. Two more definitions were
chosen before any result was seen. A baseline is compared with the profiler after the same number of rounds. The gain of
the first four rounds is that of the best of them over one task per operator; the mean is over WC, SWC and TSA.
"""

from __future__ import annotations

import time
from functools import cache
from statistics import fmean
from tempfile import TemporaryDirectory

import penstock
from benchmarks.papers.policy_rounds import PolicyRound
from benchmarks.papers.results import Figure, ResultRow
from benchmarks.papers.stepwise_study import stela, study, threshold
from benchmarks.papers.storm_flows import APPLICATIONS, Application, linear, sentiment, word_count
from penstock.study.stepwise.profile import Profile

TITLE = "Stepwise auto-profiling: results"
INTRODUCTION = (
    "[Stepwise auto-profiling](stepwise.md) explains the method, the calibration and the differences. All figures of "
    "the simulation use seed 0, so the command prints the same numbers again. The time on Spark is that of one machine."
)
NODES = 6
SLOTS_ON_SPARK = 2
REAL = ("WC", "SWC", "TSA")
TARGET_PER_S = 6000.0
PAPER_ROUNDS = {"linear": "4", "star": "6", "diamond": "3 of them in step 3", "WC": "5", "SWC": "9", "TSA": "-"}
PAPER_PLANS = {"linear": "(1, 2, 2, 2)", "star": "(3, 3, 48, 24, 24)"}
PAPER_GAINS = {"linear": "+95.7 %", "star": "+64 %"}
PAPER_FIRST = {"WC": "+45 %", "SWC": "+21.1 %", "TSA": "+25 %"}
PAPER_BETTER = {"WC": "+34.1 %", "SWC": "+40.1 %", "TSA": "+31.9 %"}


def _row(number: str, subject: str, paper: str, penstock: str) -> ResultRow:
    return ResultRow(
        figure=f"{number}: {subject}",
        paper=paper,
        penstock=penstock,
        engine="simulation, row-by-row",
        command=f"python -m benchmarks.papers stepwise --figure {number[:2]}",
    )


def percent(value: float) -> str:
    return f"{100 * value:+.1f} %"


def plan_text(result: Profile) -> str:
    return f"({', '.join(str(count) for count in result.plan.replicas.values())})"


def rounds_text(result: Profile) -> str:
    return f"{len(result.rounds)}, {sum(row.step == 'capacity' for row in result.rounds)} of them in step 3"


@cache
def on_six_nodes(name: str) -> tuple[Application, Profile, Profile, list[PolicyRound], list[PolicyRound]]:
    """Return an application, its profile by Penstock and as printed, and the two baselines."""
    application = APPLICATIONS[name]()
    result = study(application, NODES)
    printed = study(application, NODES, as_printed=True)
    rounds = max(4, len(result.rounds))
    return application, result, printed, stela(application, NODES, rounds), threshold(application, NODES, rounds)


def per_s(application: Application, rows_per_s: float) -> float:
    return rows_per_s * application.tweets_per_row


def lead_over_baselines(name: str) -> float:
    """Return the final throughput relative to the better baseline after the same number of rounds, minus 1."""
    _, result, _, by_stela, by_threshold = on_six_nodes(name)
    last = len(result.rounds) - 1
    return result.rows_per_s / max(by_stela[last].rows_per_s, by_threshold[last].rows_per_s) - 1.0


def first_four_gains(name: str) -> tuple[float, float, float]:
    """Return the gain of the best of four rounds over one task per operator: stepwise, Stela, threshold."""
    _, result, _, by_stela, by_threshold = on_six_nodes(name)
    one_task = by_stela[0].rows_per_s
    of_study = [row.rows_per_s for row in result.rounds[:4]]
    of_stela, of_threshold = ([row.rows_per_s for row in rounds[:4]] for rounds in (by_stela, by_threshold))
    stepwise_gain, stela_gain, threshold_gain = (
        max(rows) / one_task - 1 for rows in (of_study, of_stela, of_threshold)
    )
    return stepwise_gain, stela_gain, threshold_gain


def figure_11() -> list[ResultRow]:
    rows = []
    for letter, name in zip("abcdef", APPLICATIONS, strict=True):
        application, result, printed, by_stela, _ = on_six_nodes(name)
        number, first = f"11{letter}", per_s(application, by_stela[0].rows_per_s)
        both = f"{rounds_text(result)}; printed steps: {rounds_text(printed)}"
        rows.append(_row(number, f"{name}, rounds", PAPER_ROUNDS[name], both))
        gain = result.rows_per_s / result.rounds[0].rows_per_s - 1.0
        ends = [f"{plan_text(end)}, {per_s(application, end.rows_per_s):,.0f}/s" for end in (result, printed)]
        both = f"{ends[0]}; printed steps: {ends[1]}"
        rows.append(_row(number, f"{name}, final plan", PAPER_PLANS.get(name, "-"), both))
        rows.append(_row(number, f"{name}, gain over the first round", PAPER_GAINS.get(name, "-"), percent(gain)))
        if name not in REAL:
            continue
        start = per_s(application, result.rounds[0].rows_per_s) / first - 1.0
        rows.append(_row(number, f"{name}, first plan over one task each", PAPER_FIRST[name], percent(start)))
        lead = lead_over_baselines(name)
        rows.append(_row(number, f"{name}, final over the better baseline", PAPER_BETTER[name], percent(lead)))
        without = printed.rows_per_s / result.rows_per_s * (1.0 + lead) - 1.0
        subject = f"{name}, the same with the printed steps"
        rows.append(_row(number, subject, PAPER_BETTER[name], f"{percent(without)}, {len(printed.rounds)} rounds"))
    gains = [first_four_gains(name) for name in REAL]
    ours, of_stela, of_threshold = (fmean(gain) for gain in zip(*gains, strict=True))
    rows.append(_row("11d-f", "gain of four rounds relative to Stela", "2.48", f"{ours / of_stela:.2f}"))
    rows.append(_row("11d-f", "gain of four rounds relative to threshold", "11.63", f"{ours / of_threshold:.2f}"))
    shares = [on_six_nodes(name)[1].rows_per_s for name in ("SWC", "WC")]
    rows.append(_row("11d-e", "SWC relative to WC", "86.8 %", f"{100 * shares[0] / shares[1]:.1f} %"))
    return rows


@cache
def of_depth(depth: int) -> Profile:
    return study(linear(depth, mixed=True), NODES)


@cache
def word_count_on(nodes: int) -> Profile:
    return study(word_count(), nodes)


@cache
def stela_on(nodes: int) -> list[PolicyRound]:
    """Return as many rounds of Stela as the profiler needed."""
    return stela(word_count(), nodes, len(word_count_on(nodes).rounds))


def figure_12() -> list[ResultRow]:
    rows = []
    for depth, gain in ((6, "+33.5 %"), (8, "+24 %"), (12, "+20.5 %")):
        result = of_depth(depth)
        own = result.rows_per_s / result.rounds[0].rows_per_s - 1.0
        rows.append(_row("12a", f"linear of depth {depth}, gain", gain, f"{percent(own)}, {len(result.rounds)} rounds"))
    smallest = word_count_on(6).rows_per_s
    for nodes, growth in ((6, "1"), (10, "less than 10 / 6 = 1.67"), (14, "less than 14 / 6 = 2.33")):
        result = word_count_on(nodes)
        text = f"{result.rows_per_s / smallest:.2f}, {len(result.rounds)} rounds, {plan_text(result)}"
        rows.append(_row("12b", f"WC on {nodes} nodes, relative to 6", growth, text))
    return rows


def nodes_for(rate_per_s: float, rates: dict[int, float]) -> int | None:
    """Return the fewest nodes that process a rate."""
    return next((nodes for nodes, rate in sorted(rates.items()) if rate >= rate_per_s), None)


def rates_by_nodes() -> tuple[dict[int, float], dict[int, float]]:
    """Return the tweets/s of WC by nodes: stepwise and Stela, after the same number of rounds."""
    application, all_nodes = word_count(), range(2, 15, 2)
    ours = {nodes: per_s(application, word_count_on(nodes).rows_per_s) for nodes in all_nodes}
    theirs = {nodes: per_s(application, stela_on(nodes)[-1].rows_per_s) for nodes in all_nodes}
    return ours, theirs


def largest_saving(ours: dict[int, float], theirs: dict[int, float]) -> float:
    """Return the largest share of nodes that are saved, over the rates that both methods reach on some nodes."""
    savings = [0.0]
    for rate in (*ours.values(), *theirs.values()):
        own, other = nodes_for(rate, ours), nodes_for(rate, theirs)
        if own is not None and other is not None:
            savings.append(1.0 - own / other)
    return max(savings)


def figure_13() -> list[ResultRow]:
    ours, theirs = rates_by_nodes()
    paper = {4: "6,000/s (calibrated)"}
    rows = [
        _row(
            "13",
            f"WC on {nodes} nodes, stepwise and Stela",
            paper.get(nodes, "-"),
            f"{ours[nodes]:,.0f}/s and {theirs[nodes]:,.0f}/s",
        )
        for nodes in ours
    ]
    text = f"{nodes_for(TARGET_PER_S, ours)} and {nodes_for(TARGET_PER_S, theirs)} nodes"
    rows.append(_row("13", "nodes for 6,000/s, stepwise and Stela", "4 (calibrated) and 8 nodes", text))
    rows.append(_row("13", "largest saving of nodes", "57.1 %", f"{100 * largest_saving(ours, theirs):.1f} %"))
    minutes = word_count_on(14).seconds / 60.0
    rows.append(
        _row(
            "13",
            "time of the profile on 14 nodes",
            "200 min, 10 trials",
            f"{minutes:.0f} min, {len(word_count_on(14).rounds)} trials",
        )
    )
    return rows


def section_6_3() -> list[ResultRow]:
    """Profile word count from scratch on Spark. The time includes the start of Spark."""
    began_s = time.monotonic()
    with TemporaryDirectory() as directory:
        result = penstock.profile("penstock.apps.stepwise.word_count", slots=SLOTS_ON_SPARK, at=directory)
    minutes = (time.monotonic() - began_s) / 60.0
    return [
        ResultRow(
            figure=f"6.3: time of a profile of word count, {SLOTS_ON_SPARK} slots",
            paper="200 min, 10 trials",
            penstock=f"{minutes:.1f} min, {len(result.rounds)} trials (at most 10 min required)",
            engine="Spark",
            command="python -m benchmarks.papers stepwise --figure 6.3",
        )
    ]


@cache
def sentiment_with(*, latency_s: float = 0.5, slice_: float = 0.3, k: float = 2.0, as_printed: bool = False) -> Profile:
    return study(sentiment(), 4, latency_s=latency_s, slice_=slice_, k=k, as_printed=as_printed)


def figure_14() -> list[ResultRow]:
    paper = {
        "latency target 300 ms": "throttled, lower throughput",
        "latency target 500 ms": "default",
        "latency target 700 ms": "one more source task is tried and revoked",
        "slice 0.1": "higher start, later trials of step 2 fail",
        "slice 0.3": "default",
        "slice 0.5": "start 90.9 %, final 79.7 % of the default",
        "k 1.5": "more rounds in step 3",
        "k 2": "default",
        "k 3": "no step 3",
    }
    variants: dict[str, dict[str, float]] = {
        "latency target 300 ms": {"latency_s": 0.3},
        "latency target 500 ms": {},
        "latency target 700 ms": {"latency_s": 0.7},
        "slice 0.1": {"slice_": 0.1},
        "slice 0.3": {},
        "slice 0.5": {"slice_": 0.5},
        "k 1.5": {"k": 1.5},
        "k 2": {},
        "k 3": {"k": 3.0},
    }
    rows = []
    for name, options in variants.items():
        texts = []
        for as_printed in (True, False):
            default = sentiment_with(as_printed=as_printed)
            result = sentiment_with(as_printed=as_printed, **options)
            start = result.rounds[0].rows_per_s / default.rounds[0].rows_per_s
            end = result.rows_per_s / default.rows_per_s
            shares = f"start {100 * start:.0f} %, final {100 * end:.0f} % of the default"
            throttled = ", throttled" if any(row.change == "throttle" for row in result.rounds) else ""
            texts.append(f"{shares}{throttled}; rounds: {rounds_text(result)}")
        letter = {"l": "a", "s": "b", "k": "c"}[name[0]]
        rows.append(_row(f"14{letter}", f"{name}, printed steps", paper[name], texts[0]))
        rows.append(_row(f"14{letter}", f"{name}, Penstock", paper[name], texts[1]))
    return rows


FIGURES: dict[str, Figure] = {
    "11": figure_11,
    "12": figure_12,
    "13": figure_13,
    "6.3": section_6_3,
    "14": figure_14,
}
