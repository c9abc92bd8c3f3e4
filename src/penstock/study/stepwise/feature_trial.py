"""Measure the features of an application at loads at which nothing queues (Liu et al. 2017, section 4.1).

A simulated engine is measured for as long as the slices need. An engine in real time that processes batches is measured
for seconds: the load grows until batches become longer, because even a batch with one row takes its fixed time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.control.loop import Clock
from penstock.control.visit_ratios import operator_visits
from penstock.dataflow.dataflow import Dataflow
from penstock.dataflow.errors import PenstockError
from penstock.dataflow.operators import Kind
from penstock.dataflow.regions import regions
from penstock.engines.ports import RunnableEngine
from penstock.measure.window import OperatorWindow, Window
from penstock.plan import Plan
from penstock.store import ProfiledOperator
from penstock.study.mst.throughput import mix
from penstock.study.mst.trial_engine import recovered, started
from penstock.study.stepwise.continued_engine import set_rates
from penstock.study.stepwise.features import minimal_latency_s, relative_stream_sizes
from penstock.study.stepwise.operator_types import InputOutputRates, OperatorType, operator_type
from penstock.study.stepwise.trial import FreshEngine
from penstock.study.stepwise.trial_sums import TrialSums

DeclaredTypes = Mapping[str, OperatorType]
MeasureFeatures = Callable[[FreshEngine, Plan, DeclaredTypes], tuple[ProfiledOperator, ...]]

_FASTER = 3.0  # the second small load, relative to the first one
# In simulation:
_ROWS = 250  # rows of a slice of the data
_SLICES = 20
_UTILISATION = 0.05  # highest utilisation at the lower of the two small loads
_PROBE_ROWS_PER_S = 1.0
_PROBES = 30
# In batches:
_FIRST_ROWS_PER_S = 20.0
_MAX_STEPS = 9  # steps in which the load grows
_WINDOW_S = 1.0  # shortest window
_BATCHES = 2.0  # batches of each query in a window, at least
_TRIES = 2
_LONGER = 1.5  # batches that take this multiple of the shortest ones are not dominated by their fixed time
_PAIRS = 5  # slices of the data at each load; each slice is measured in two windows


def measure_features(fresh: FreshEngine, plan: Plan, declared: DeclaredTypes) -> tuple[ProfiledOperator, ...]:
    """Measure each operator at two loads at which nothing queues. Both read the same data from its beginning."""
    flow, probe = _slices(fresh, plan, _PROBE_ROWS_PER_S, 1.0, _PROBES)
    sums = TrialSums(flow)
    for window in probe:
        sums.add(window)
    _check_costs(sums)
    external = sum(sums.rows_in[name] for name in mix(flow))
    slowest_s = max(
        sum(sums.busy_s[name] for name in region.operators) / plan.replicas[region.name] / external
        for region in regions(flow)
        if region.kind is not Kind.SOURCE
    )
    rate = _UTILISATION / slowest_s
    slow = _slices(fresh, plan, rate, _ROWS / rate, _SLICES)[1]
    fast = _slices(fresh, plan, _FASTER * rate, _ROWS / (_FASTER * rate), _SLICES)[1]
    return _features(flow, slow, fast, declared)


def measure_features_in_batches(
    fresh: FreshEngine, plan: Plan, declared: DeclaredTypes
) -> tuple[ProfiledOperator, ...]:
    """Measure each operator at two loads that hardly lengthen batches, one after another in one run.

    The loads read different data. A slice is measured in two windows, so that differences between slices can be told
    from those within a slice.
    """
    engine, clock = fresh(plan)
    with started(engine):
        rate, window_s = _highest_small_rate(engine, clock)
        sums = TrialSums(engine.flow)
        passes: list[list[Window]] = []
        for load in (rate / _FASTER, rate):
            set_rates(engine, load)
            _next_window(engine, clock, window_s)  # rows of the previous load
            windows = [_next_window(engine, clock, window_s) for _ in range(2 * _PAIRS)]
            for window in windows:
                sums.add(window)
            passes.append(windows)
    _check_costs(sums)
    slow, fast = passes
    return _features(engine.flow, slow, fast, declared, windows_per_slice=2, again=False)


def _highest_small_rate(engine: RunnableEngine, clock: Clock) -> tuple[float, float]:
    """Return the highest rate at which no query has much longer batches than with few rows, and a length of windows."""
    rate, shortest_s = _FIRST_ROWS_PER_S, dict[str, float]()
    for _ in range(_MAX_STEPS):
        set_rates(engine, rate)
        window_s = max(_WINDOW_S, _BATCHES * max(shortest_s.values(), default=0.0))
        _next_window(engine, clock, window_s)
        # A disturbed window is measured again before it counts.
        if all(_is_longer(_next_window(engine, clock, window_s), shortest_s) for _ in range(_TRIES)):
            break
        rate *= _FASTER
    return max(_FIRST_ROWS_PER_S, rate / _FASTER), window_s


def _is_longer(window: Window, shortest_s: dict[str, float]) -> bool:
    """Return whether batches of a query are longer than the shortest so far, or longer than the window."""
    seconds = {query.pipeline: query.batch_s for query in window.pipelines if query.batches and query.batch_s}
    for name, taken in seconds.items():
        shortest_s[name] = min(taken, shortest_s.get(name, taken))
    has_long_batch = any(query.pipeline in shortest_s and not query.batches for query in window.pipelines)
    return has_long_batch or any(taken > _LONGER * shortest_s[name] for name, taken in seconds.items())


def _next_window(engine: RunnableEngine, clock: Clock, seconds: float) -> Window:
    clock.sleep(seconds)
    recovered(engine, "while its features were measured")
    return engine.observe()


def _slices(fresh: FreshEngine, plan: Plan, rate: float, window_s: float, count: int) -> tuple[Dataflow, list[Window]]:
    engine, clock = fresh(plan)
    with started(engine):
        set_rates(engine, rate)
        windows = [_next_window(engine, clock, window_s) for _ in range(count)]
    return engine.flow, windows


def _check_costs(sums: TrialSums) -> None:
    external = sum(sums.rows_in[name] for name in mix(sums.flow))
    if not external or not any(sums.busy_s.values()):
        raise PenstockError(
            f"No operator of '{sums.flow.name}' took time for {external:g} rows; there is nothing to distribute."
        )


def _features(
    flow: Dataflow,
    slow: list[Window],
    fast: list[Window],
    declared: DeclaredTypes,
    *,
    windows_per_slice: int = 1,
    again: bool = True,  # whether both loads read the same data
) -> tuple[ProfiledOperator, ...]:
    visits = _visits(flow, fast[-1])
    streams = {
        (seen.operator, consumer.name): visits[seen.operator]
        * (_selectivity(seen) or 0.0)
        * seen.share_for(consumer.name)
        for seen in fast[-1].operators
        for consumer in flow.consumers(seen.operator)
    }
    shares = relative_stream_sizes(streams).rows
    first_fast = 0 if again else len(slow)
    return tuple(
        ProfiledOperator(
            operator=operator.name,
            type=operator_type(
                _flows(slow, operator.name, windows_per_slice, 0),
                _flows(fast, operator.name, windows_per_slice, first_fast),
                declared=declared.get(operator.name),
            ).value,
            min_latency_s=_minimal_latency_s((*slow, *fast), operator.name),
            rows_in=visits[operator.name],
            streams={consumer.name: shares[operator.name, consumer.name] for consumer in flow.consumers(operator.name)},
        )
        for operator in flow.operators
    )


def _visits(flow: Dataflow, window: Window) -> dict[str, float]:
    """Return the rows that reach each operator per external row. The window contains all rows since the start."""
    read = {name: float(window.operator(name).rows_in_total or 0) for name in mix(flow)}
    visits = operator_visits(flow, window, read)
    if visits is None:
        raise PenstockError(
            f"Some operators of '{flow.name}' receive no rows at a small load; profile a dataflow in which "
            "each operator receives rows."
        )
    return visits | {name: rows / sum(read.values()) for name, rows in read.items()}


def _selectivity(seen: OperatorWindow) -> float | None:
    return seen.rows_out_total / seen.rows_in_total if seen.rows_in_total and seen.rows_out_total is not None else None


def _flows(windows: list[Window], name: str, windows_per_slice: int, first: int) -> list[InputOutputRates]:
    result = []
    for number, window in enumerate(windows, start=first):
        seconds, seen = window.end_s - window.start_s, window.operator(name)
        result.append(
            InputOutputRates(
                data_slice=number // windows_per_slice,
                input_rows_per_s=(seen.rows_in or 0) / seconds,
                output_rows_per_s=(seen.rows_out or 0) / seconds,
            )
        )
    return result


def _minimal_latency_s(windows: tuple[Window, ...], name: str) -> float:
    """Return a low quantile over the windows, or the last one that the engine itself has determined."""
    seen = [window.operator(name) for window in windows]
    determined = [operator.min_seconds_per_row for operator in seen if operator.min_seconds_per_row is not None]
    if determined:
        return determined[-1]
    known = [operator.seconds_per_row for operator in seen if operator.seconds_per_row is not None]
    return minimal_latency_s(known) if known else 0.0
