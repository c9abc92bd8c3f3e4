"""The dataflows of Liu et al. (TAAS 12(4), 2017, section 6.1.1) for simulation, as Storm runs them.

Every operator has its own tasks, which are threads. A node has two cores, and each core is a slot. A task that waits
does not use its core.

Calibration. The text of the paper contains few absolute numbers. Only these first data points were used, so that all
other figures are predictions:

- `linear` processes 1876 / 1.957 = 958.6 rows/s with one task per operator (figure 11a, first round). This is the time
  of an operator that computes: 1.043 ms. All graphs use it.
- `word_count`: the ratio of the tasks is 2:2:3 and a tweet has 12 words (figures 3 and 5). The task loads of the three
  operators are 0.75, 0.75 and 1 (the middle of the possible range). The profiler reaches 6,000 tweets/s on four nodes
  (figure 13). Here it uses 94 % of the time of the cores, so a tweet takes 0.94 x 8 cores / 6,000 per s = 1.253 ms.

Chosen because the paper omits them, before any result was seen (except for the type of `merge` in the sentiment
analysis, which was changed to proportional afterwards): an operator that parses JSON takes 0.26 ms and waits
for half of it; a waiting operator takes 5 ms (section 6.1.1) without a core; all selectivities of the graphs are 1,
and the centre of the star sends each row to one of its two consumers; the costs, shares and periods of `sentiment`.
Service times are exponential, except for waiting. One row of the simulation represents `TWEETS_PER_ROW` tweets of the
two word counts and of `sentiment`: costs are multiplied and rates divided by it, which changes no ratio.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import penstock
from penstock.dataflow import Dataflow, Kind
from penstock.dataflow.stream import Stream
from penstock.engines.simulated import Behaviour, Exponential, Fixed, OperatorBehaviour, SourceBehaviour
from penstock.engines.simulated.behaviour import UNLIMITED_ROWS

SLOTS_PER_NODE = 2
TWEETS_PER_ROW = 10
WORDS_PER_TWEET = 12
CPU_S = 1.957 / 1876
JSON_S, JSON_CPU = 0.26e-3, 0.5
WAIT_S = 5e-3
TWEET_S = 0.94 * 8 / 6000
LOADS = {"parse": 0.75, "split": 0.75, "count": 1.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    flow: Dataflow
    costs: Behaviour
    tweets_per_row: int = 1
    latency_s: float = 0.5

    @property
    def visits(self) -> dict[str, float]:
        """Rows that reach each operator per external row; 0 if they do not grow with the input of the dataflow."""
        sources = [operator.name for operator in self.flow.operators if operator.kind is Kind.SOURCE]
        result: dict[str, float] = {}
        for operator in self.flow.operators:
            if operator.name in sources:
                result[operator.name] = 1.0 / len(sources)
                continue
            result[operator.name] = sum(
                result[name] * self._gain(name) * self.costs.of(name).routes.get(operator.name, 1.0)
                for name in operator.inputs
            )
        return result

    def _gain(self, name: str) -> float:
        if self.flow[name].kind is Kind.SOURCE:
            return 1.0
        return 0.0 if self.costs.of(name).period_s is not None else self.costs.selectivity(self.flow, name).mean

    @property
    def core_s_per_row(self) -> float:
        """Time on a core of all operators together for one external row."""
        costs = self.costs.operators
        return sum(self.visits[name] * own.service_s.mean * own.cpu_share for name, own in costs.items())


def _cpu() -> OperatorBehaviour:
    return OperatorBehaviour(service_s=Exponential(mean=CPU_S))


def _json() -> OperatorBehaviour:
    return OperatorBehaviour(service_s=Exponential(mean=JSON_S), cpu_share=JSON_CPU)


def _wait(seconds: float = WAIT_S) -> OperatorBehaviour:
    return OperatorBehaviour(service_s=Fixed(value=seconds), cpu_share=0.0)


class _Builder:
    """Adds operators with keys of their own, so that each of them has its own tasks."""

    def __init__(self, name: str) -> None:
        self.flow = penstock.Dataflow(name)
        self.costs: dict[str, OperatorBehaviour] = {}
        self._sources: list[str] = []

    def source(self, name: str) -> Stream:
        self._sources.append(name)
        return self.flow.source(name, penstock.generate(int, schema="n bigint", rows_per_s=1.0))

    def add(self, name: str, costs: OperatorBehaviour, *inputs: Stream) -> Stream:
        self.costs[name] = costs
        reads_source = any(stream.name in self._sources for stream in inputs)  # a source has no other column
        key = "n" if reads_source else f"key_of_{name}"
        return self.flow.keyed(name, lambda *frames: frames[0], keys=[key], inputs=list(inputs))

    def application(self, *ends: Stream, tweets_per_row: int = 1, latency_s: float = 0.5) -> Application:
        for number, end in enumerate(ends):
            end.sink(f"out{number or ''}", penstock.noop())
        source = SourceBehaviour(rates=((0.0, 1.0),), rows=UNLIMITED_ROWS)
        costs = Behaviour(operators=self.costs, sources=dict.fromkeys(self._sources, source))
        return Application(flow=self.flow, costs=costs, tweets_per_row=tweets_per_row, latency_s=latency_s)


def linear(depth: int = 3, *, mixed: bool = False) -> Application:
    """Return operators in a row, all of which compute; mixed: computing, parsing and waiting ones in turn."""
    kinds: list[Callable[[], OperatorBehaviour]] = [_cpu, _json, _wait] if mixed else [_cpu]
    build = _Builder(f"linear_{depth}")
    stream = build.source("tweets")
    for number in range(depth):
        stream = build.add(f"op{number + 2}", kinds[number % len(kinds)](), stream)
    return build.application(stream)


def star() -> Application:
    """Return two sources, a centre and two consumers. All of them parse; the latency target is 100 ms (footnote 19)."""
    build = _Builder("star")
    centre = build.add("op3", _json(), build.source("op1"), build.source("op2"))
    outer = [build.add(name, _json(), centre) for name in ("op4", "op5")]
    application = build.application(*outer, latency_s=0.1)
    routed = {
        "op3": OperatorBehaviour(
            service_s=Exponential(mean=JSON_S), cpu_share=JSON_CPU, routes={"op4": 0.5, "op5": 0.5}
        )
    }
    costs = application.costs.replace(operators=application.costs.operators | routed)
    return Application(flow=application.flow, costs=costs, latency_s=0.1)


def diamond() -> Application:
    """Return four operators that receive every row: one computes, one parses, two wait; and one that merges."""
    build = _Builder("diamond")
    rows = build.source("op1")
    kinds = {"op2": _cpu(), "op3": _json(), "op4": _wait(), "op5": _wait()}
    merged = build.add("op6", _json(), *(build.add(name, costs, rows) for name, costs in kinds.items()))
    return build.application(merged)


def _tweet_costs(tweet_s: float, *, selectivity: float = 1.0, period_s: float | None = None) -> OperatorBehaviour:
    return OperatorBehaviour(
        service_s=Exponential(mean=tweet_s * TWEETS_PER_ROW), selectivity=Fixed(value=selectivity), period_s=period_s
    )


def word_count(*, waits: bool = False) -> Application:
    """Return the word count; with an operator that waits 1 ms for each tweet, the synthetic word count."""
    build = _Builder("synthetic_word_count" if waits else "word_count")
    unit_s = TWEET_S / sum(LOADS.values())
    stream = build.source("tweets")
    if waits:
        stream = build.add("wait", _wait(1e-3 * TWEETS_PER_ROW), stream)
    stream = build.add("parse", _tweet_costs(LOADS["parse"] * unit_s), stream)
    stream = build.add("split", _tweet_costs(LOADS["split"] * unit_s, selectivity=WORDS_PER_TWEET), stream)
    stream = build.add("count", _tweet_costs(LOADS["count"] * unit_s / WORDS_PER_TWEET), stream)
    return build.application(stream, tweets_per_row=TWEETS_PER_ROW)


def sentiment() -> Application:
    """Return the Twitter sentiment analysis of figure 10: eleven operators, eight stages deep.

    40 % of the tweets are English, and a tweet has 0.5 hashtags. The ranking is emitted once per second, ten rows at a
    time, so it is logic-dependent, and the operators behind it are not scalable.
    """
    build = _Builder("sentiment")
    tweets = build.add("write", _tweet_costs(0.1e-3), build.source("tweets"))
    detected = build.add("detect", _tweet_costs(0.4e-3), tweets)
    english = build.add(
        "score",
        _tweet_costs(0.5e-3),
        build.add("english", _tweet_costs(0.05e-3, selectivity=0.4), detected),
    )
    average = build.add("average", _tweet_costs(0.1e-3), english)
    hashtags = build.add("hashtags", _tweet_costs(0.1e-3, selectivity=0.5), detected)
    counted = build.add("count", _tweet_costs(0.1e-3), hashtags)
    part = build.add("rank", _tweet_costs(0.1e-3, selectivity=10.0, period_s=1.0), counted)
    ranking = build.add("merge", _tweet_costs(0.1e-3), part)
    report = build.add("report", _tweet_costs(0.1e-3), ranking)
    shown = build.add("show", _tweet_costs(0.1e-3), average)
    return build.application(shown, report, tweets_per_row=TWEETS_PER_ROW)


APPLICATIONS: dict[str, Callable[[], Application]] = {
    "linear": linear,
    "star": star,
    "diamond": diamond,
    "WC": word_count,
    "SWC": lambda: word_count(waits=True),
    "TSA": sentiment,
}
