"""Figures of Kahveci and Gedik, "Joker", JPDC 2020, section 5, in simulation.

`joker_runs` describes the simulated costs and their calibration. The policy is strict: it has no extensions. Where the
paper names no work per row, powers of 4 from 32 to 2048 multiplications are used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import pairwise
from statistics import fmean

import penstock
from benchmarks.papers import joker_applications as applications
from benchmarks.papers.joker_runs import STRICT, Adapted, X, adapted
from benchmarks.papers.results import Figure, ResultRow
from penstock.apps import joker
from penstock.apps.joker.graph import FACTORS, OPERATORS
from penstock.apps.joker.multiplication import finish, global_multiply, keyed_multiply, multiply, source
from penstock.apps.joker.regions import region, selective_region
from penstock.control.policies.adaptation_parameters import Variant
from penstock.control.policies.fission_model import FissionModel
from penstock.dataflow import Dataflow, Kind, regions
from penstock.dataflow.stream import Stream
from penstock.models.fission_costs import FissionCosts
from penstock.plan import diff

TITLE = "Joker: results"
INTRODUCTION = (
    "[Joker](joker.md) explains the method and the differences. `benchmarks/papers/joker_runs.py` describes the "
    "simulated costs: they were calibrated with the first point of figure 5 only, so throughputs are not comparable."
)
WORKS = (32, 128, 512, 2048)  # multiplications per row


def _row(number: str, subject: str, paper: str, penstock: str) -> ResultRow:
    return ResultRow(
        figure=f"{number}: {subject}",
        paper=paper,
        penstock=penstock,
        engine="simulation, row-by-row, 24 slots",
        command=f"python -m benchmarks.papers joker --figure {number}",
    )


def _steps(result: Adapted) -> str:
    """Return every change with its verdict."""
    return "; ".join(
        f"{diff(row.old, row.new)} ({row.verdict})"
        for row in result.changes
        if row.new is not None and row.reason_code != "roll-back"
    )


def _behind(add_region: Callable[[Stream], Stream], limit: float, x: float = X) -> Dataflow:
    """Return a region behind the thread of a source that emits one row per `limit` multiplications."""
    own = max(1, round(limit - x - x / 5))
    emitted = global_multiply(source(penstock.Dataflow("behind_a_source"), None, 1.0), "emit", own)
    return finish(add_region(emitted), None, None)


def _two(first: int, second: int) -> Callable[[Stream], Stream]:
    return lambda stream: multiply(keyed_multiply(stream, "m1", first), "m2", second)


def four_operators(variant: Variant, work: int) -> Adapted:
    """Adapt the region of figure 4; `work` is that of all four operators."""
    return adapted(joker.four_operators(work=work // 4), replace(STRICT, variant=variant), work=work)


def figure_5() -> list[ResultRow]:
    paper = {
        Variant.FUSION_ONLY: "2 at low, 4 at high cost",
        Variant.FISSION_ONLY: "at least 5, up to 10",
        Variant.FUSION_FIRST: "highest at all costs, up to 20",
        Variant.FISSION_FIRST: "about as fusion first",
    }
    rows = []
    for variant, text in paper.items():
        speedups = ", ".join(f"{four_operators(variant, work).speedup:.1f}" for work in WORKS)
        subject = f"speedup of {variant.value} at {', '.join(map(str, WORKS))} multiplications"
        rows.append(_row("5", subject, text, speedups))
    return rows


def figure_6() -> list[ResultRow]:
    rows = []
    for count in (2, 4, 8):
        speedups = [
            adapted(region("long", [work // count] * count, None, None, 1.0), work=work).speedup for work in (128, 2048)
        ]
        text = f"{speedups[0]:.1f} at 128, {speedups[1]:.1f} at 2048 multiplications"
        rows.append(_row("6", f"speedup of {count} operators", "significant for long regions", text))
    return rows


def figure_8() -> list[ResultRow]:
    flows = {
        "tree": joker.tree,
        "reverse tree": joker.reverse_tree,
        "chain of 2": joker.chain,
        "chain of 4": lambda work: joker.chain(operators=4, work=work // 2),
    }
    paper = {"tree": "lower than the chains", "reverse tree": "lower than the chains"}
    rows = []
    for name, make in flows.items():
        result = adapted(make(work=1024), work=1024)
        counts = ", ".join(str(count) for count in result.plan.replicas.values())
        text = f"{result.speedup:.1f} with replicas {counts}"
        rows.append(_row("8", f"speedup of {name}, 1024 multiplications per region", paper.get(name, "higher"), text))
    return rows


def figure_9() -> list[ResultRow]:
    rows = []
    for work in (32, 256, 2048):
        result = adapted(joker.costly_and_cheap(work=work), work=work)
        costly, cheap = list(result.plan.replicas.values())[:2]
        paper = (
            "13 and 4 replicas, speedup 12, at the highest cost" if work == 2048 else "4 replicas of the cheap region"
        )
        text = f"{costly} and {cheap} replicas, speedup {result.speedup:.1f}"
        rows.append(_row("9", f"{work} and {work // 8} multiplications", paper, text))
    return rows


def selectivities(x: float = X, distribution: float = X) -> Adapted:
    """Adapt the region of figure 10. The thread of its source emits at most 230 ktps, and one thread processes 80."""
    work = 4 * 1024
    flow = _behind(selective_region, (work + x) * 80 / 230, x)
    return adapted(flow, work=work, x=x, distribution=distribution)


def figure_10() -> list[ResultRow]:
    """The calibrated costs do not give the printed decisions, so the figure is computed for other costs of a row, too.

    One replaces the calibrated cost. One is the overhead of 0.15 that figures 14 and 15 state, in multiplications of
    this region (0.15 / 0.85 x 4096). In the last one only transfers are costly, and distribution is calibrated.
    """
    paper = (
        "split (reverted, +4 %); 2 replicas (kept, +67 %); split (reverted, +9 %); 3 replicas (kept, +46 %); split "
        "(kept, +14 %)"
    )
    rows = []
    for x, distribution, costs in (
        (X, X, "calibrated"),
        (800.0, 800.0, "if the transfer of a row costs 800 multiplications"),
        (723.0, 723.0, "if the overhead is 0.15 as in figures 14 and 15"),
        (470.0, X, "if the transfer costs 470 and the distribution over replicas is calibrated"),
    ):
        changes = _steps(selectivities(x, distribution))
        rows.append(_row("10", f"changes of the region with selectivities, {costs}", paper, changes))
    return rows


DOUBLING = tuple((300.0 * number, 8.0 * 2**number) for number in range(5))  # (second, rows/s) of figure 11


def doubling_load(threshold: float) -> Adapted:
    """One replica processes 100 rows/s here and 500 ktps in the paper; the load doubles up to 1.28 of that."""
    parameters = replace(STRICT, bottleneck=threshold)
    return adapted(joker.one_operator(work=256), parameters, work=256, rates=DOUBLING, periods=160)


def figure_11() -> list[ResultRow]:
    rows = []
    for threshold in (0.5, 0.8, 0.95):
        result = doubling_load(threshold)
        kept = ", ".join(f"at {row.at_s:.0f} s ({row.at_s // 300 + 1:.0f}. load)" for row in result.kept)
        share = fmean(result.rows_per_s[-10:]) / DOUBLING[-1][1]
        text = f"kept {kept or 'nothing'}; {len(result.reverted)} reverted; {share:.0%} of the last load processed"
        paper = "second replica kept under the 5th load only; others reverted; no overshoot"
        rows.append(_row("11", f"bottleneck threshold {threshold:g}", paper, text))
    return rows


def figure_12() -> list[ResultRow]:
    paper = {0.1: "highest", 0.2: "as 0.1 at high cost, much lower at low cost", 0.4: "very restrictive"}
    rows = []
    for threshold, text in paper.items():
        speedups = [
            adapted(joker.four_operators(work=work // 4), replace(STRICT, throughput_increase=threshold), work=work)
            for work in WORKS
        ]
        speedups_text = ", ".join(f"{result.speedup:.1f}" for result in speedups)
        subject = f"speedup with throughput increase {threshold:g} at {', '.join(map(str, WORKS))} multiplications"
        rows.append(_row("12", subject, text, speedups_text))
    return rows


def unbalanced(threshold: float, distribution: float = X, limit: float = 16) -> Adapted:
    """Adapt two operators with costs 0.75 and 0.10 behind a source that emits one row per `limit` multiplications."""
    parameters = replace(STRICT, split_gain=threshold)
    return adapted(_behind(_two(43, 6), limit), parameters, work=49, distribution=distribution)


def balanced(threshold: float) -> Adapted:
    """Adapt two operators with costs 0.45 and 0.40."""
    return adapted(joker.two_operators(work=(26, 23)), replace(STRICT, split_gain=threshold), work=49)


def figure_14() -> list[ResultRow]:
    """The rate of the source is not printed. It is chosen so that five replicas suffice.

    With the calibrated costs, distributing rows adds to the overhead of each replica. In Joker the sender distributes
    them, so the figure is computed without this cost of the replicas, too.
    """
    paper = {0.2: "4 replicas added in 4 steps", 0.1: "a split is tried and reverted before each replica"}
    rows = []
    for distribution, limit, costs in ((X, 16, ""), (0.0, 11.5, ", rows are distributed by the source")):
        for threshold, text in paper.items():
            subject = f"costs 0.75 and 0.10, split threshold {threshold:g}{costs}"
            rows.append(_row("14", subject, text, _steps(unbalanced(threshold, distribution, limit))))
    return rows


def figure_15() -> list[ResultRow]:
    results = {threshold: balanced(threshold) for threshold in (0.2, 0.9)}
    lost = 1.0 - results[0.9].speedup / results[0.2].speedup
    subject = "costs 0.45 and 0.40: throughput at split threshold 0.9 compared with 0.2"
    text = f"{lost:.0%} lower ({results[0.9].speedup:.1f} instead of {results[0.2].speedup:.1f} times the initial one)"
    return [_row("15", subject, "40 % lower", text)]


def figure_16() -> list[ResultRow]:
    result = adapted(joker.five_operators(), work=3136)
    third = result.kept[2].new if len(result.kept) > 2 else None
    change_text = (
        "" if third is None else f"cuts after {', '.join(sorted(third.cuts))}, {third.replicas['m1_1024']} replicas"
    )
    paper = "3 pipelines (operators 1 to 3, 4, and 5) and 2 replicas"
    return [_row("16", "configuration after the third change", paper, change_text)]


def figure_18() -> list[ResultRow]:
    result = adapted(applications.word_count(), work=352, rates=((0.0, 5.0 * 100.0),))
    paper = "8 replicas of the counter, speedup 5: the source is saturated"
    result_text = f"{result.replicas('count_32')} replicas of the counter, speedup {result.speedup:.1f}"
    return [_row("18", "word count", paper, result_text)]


def figure_19() -> list[ResultRow]:
    result = adapted(applications.finance(), work=192, rates=((0.0, 4.4 * 100.0),))
    counts = f"{result.replicas('average_64')} and {result.replicas('bargain_96')} replicas"
    paper = "4 and 6 replicas, no split, speedup 4.4: the sources are saturated"
    result_text = f"{counts}, {'a' if result.plan.cuts & {'average_64'} else 'no'} split, speedup {result.speedup:.1f}"
    return [_row("19", "finance", paper, result_text)]


def figure_20() -> list[ResultRow]:
    result = adapted(applications.network_monitoring(), work=0.625 * 68, rates=((0.0, 2.86 * 100.0),))
    paper = "attempts: 2 replicas (kept, speedup 2.3); split of the filter and 3 replicas together (kept, speedup 2.86)"
    result_text = f"{_steps(result)}; speedup {result.speedup:.2f}"
    return [_row("20", "network monitoring", paper, result_text)]


@cache
def _seven_operators(factor: float) -> tuple[Adapted, Adapted]:
    """Return the results of policy `organic` and of the model, whose costs are those of the simulated threads."""
    work = sum(times for _, times, _ in OPERATORS[:3])
    unit_s = 0.01 / (work + X)
    flow = joker.seven_operators(factor=factor)
    model = FissionModel(FissionCosts(thread_s=X * unit_s, replica_s=X * unit_s))
    return adapted(flow, work=work), adapted(flow, work=work, policy=model)


def _configuration(result: Adapted) -> str:
    """Return the regions with their pipelines and replicas."""
    parts = []
    for own in regions(result.flow):
        if own.kind is Kind.SOURCE:
            continue
        text = own.operators[0]
        for before, after in pairwise(own.operators):
            text += f" / {after}" if before in result.plan.cuts else f", {after}"
        parts.append(f"[{text}] x {result.replicas(own.name)}")
    return " ".join(parts)


def _configurations(number: int, factor: float, paper: str, which: int) -> Figure:
    def figure() -> list[ResultRow]:
        subject = f"configuration of {('the model', 'organic')[which]} at selectivity factor {factor:g}"
        return [_row(str(number), subject, paper, _configuration(_seven_operators(factor)[1 - which]))]

    return figure


# Figures 22 to 31 show configurations; the text describes them as follows. Even numbers are the model's.
_PRINTED = {
    0.1: ("the upstream region has more pipelines", "the upstream region has more replicas"),
    0.2: ("the upstream region has more replicas", "the upstream region has more replicas"),
    0.4: ("the initial configuration", "as at 0.2"),
    0.8: ("the downstream region has more replicas", "both regions have more pipelines or replicas"),
    1.0: ("the region with global state limits the throughput", "the region with global state limits the throughput"),
}


def figure_32() -> list[ResultRow]:
    paper = {
        0.1: "organic is faster",
        0.2: "about equal",
        0.4: "organic is faster",
        0.8: "organic is faster",
        1.0: "about equal: the region with global state limits both",
    }
    rows = []
    for factor in FACTORS:
        organic, once = _seven_operators(factor)
        ratio = fmean(organic.rows_per_s[-10:]) / fmean(once.rows_per_s[-10:])
        rows.append(_row("32", f"selectivity factor {factor:g}", paper[factor], f"organic / model = {ratio:.2f}"))
    return rows


FIGURES: dict[str, Figure] = {
    "5": figure_5,
    "6": figure_6,
    "8": figure_8,
    "9": figure_9,
    "10": figure_10,
    "11": figure_11,
    "12": figure_12,
    "14": figure_14,
    "15": figure_15,
    "16": figure_16,
    "18": figure_18,
    "19": figure_19,
    "20": figure_20,
    **{
        str(number := 22 + 2 * at + which): _configurations(number, factor, _PRINTED[factor][which], which)
        for at, factor in enumerate(FACTORS)
        for which in (0, 1)
    },
    "32": figure_32,
}
