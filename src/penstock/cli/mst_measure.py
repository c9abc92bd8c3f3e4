"""`penstock mst measure` and `predict`: MST of a dataflow by executor count, from trials on a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli.parameters import SHARE, Counts, Finite

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack

    from penstock.control.policy import Policy
    from penstock.dataflow import Dataflow
    from penstock.engines.ports import RunnableEngine
    from penstock.engines.spark.cluster import Asked, Cluster
    from penstock.store import RunStart, Trial
    from penstock.study.mst.design import Wanted
    from penstock.study.mst.replica_search import ReplicaPolicy

_LEVEL = click.option("--level", type=SHARE, default=0.9, show_default=True, help="Share of new samples inside.")
_JSON = click.option("--json", "as_json", is_flag=True, help="JSON instead of tables.")


@click.command()
@click.argument("spec", metavar="FILE[:FLOW]")
@click.option("--executors", type=Counts(required=True), required=True, help="Counts to measure: 1,2,3,4.")
@click.option("--repeats", type=click.IntRange(min=1), default=1, show_default=True, help="Trials of each count.")
@click.option("--budget", type=click.IntRange(min=2), help="So many trials instead, each where it tells most.")
@click.option("--paced", is_flag=True, help="Check each count by the highest paced rate that is kept up.")
@click.option(
    "--replicas",
    type=click.Choice(["rule", "drs", "stela", "threshold"]),
    default="rule",
    show_default=True,
    help="By the paper's rule, or by a policy under the load of the trial.",
)
@click.option("--predict", type=Counts(), default=(), help="Executor counts to predict.")
@click.option("--at", type=click.Path(path_type=Path, file_okay=False), help="The study's directory.  [studies/<flow>]")
@click.option("--cluster", "cluster_dir", type=click.Path(path_type=Path), help="A running one.  [its own]")
@click.option("--slots", type=click.IntRange(min=1), default=2, show_default=True, help="Of an executor of its own.")
@click.option("--memory-mb", type=click.IntRange(min=1), default=1024, show_default=True, help="The same.")
@click.option("--every", "every_s", type=Finite(min=0.1), default=5.0, show_default=True, help="Seconds a window.")
@_LEVEL
@_JSON
def measure(
    spec: str,
    executors: tuple[int, ...],
    repeats: int,
    budget: int | None,
    paced: bool,
    replicas: str,
    predict: tuple[int, ...],
    at: Path | None,
    cluster_dir: Path | None,
    slots: int,
    memory_mb: int,
    every_s: float,
    level: float,
    as_json: bool,
) -> None:
    """Measure what a dataflow sustains on so many executors, then fit, choose and predict.

    Sources are sped up until rows always wait, and what was preloaded (a topic, files without a rate) is read again as
    often as it takes; sinks compute everything and write nothing. Trials are kept as they end: the same command goes on
    where it was interrupted.

    \b
    Example:
      penstock mst measure wordcount.py --executors 1,2,3 --repeats 3 --predict 5,6
      penstock mst measure wordcount.py --executors 1,2,3,4 --budget 6 --at studies/wc
      penstock mst measure wordcount.py --executors 1,2,3 --replicas drs --at studies/wc-drs
    """
    import contextlib
    import os
    import signal
    import time

    from penstock.dataflow.load import load
    from penstock.engines.spark import cluster
    from penstock.store import RunStart, Store
    from penstock.study.mst.design import grid, with_result
    from penstock.study.mst.fingerprint import fingerprint
    from penstock.study.mst.paced import Bisection
    from penstock.study.mst.samples import Saturation
    from penstock.study.mst.study import MstStudy

    if paced and budget is not None:
        raise click.UsageError("--paced checks the counts of --repeats; give it without --budget")
    flow = load(spec).without_output()
    flow.check()
    _check_sources(flow, paced=paced)
    at = at or Path("studies") / flow.name
    asked = cluster.Asked(workers=max(executors), slots=slots, memory_mb=memory_mb)
    if cluster_dir is not None:
        asked = cluster.running(cluster_dir).record.asked
    program = fingerprint(flow)
    wanted = {one.key for one in grid(executors, repeats, paced=paced)}
    with contextlib.ExitStack() as stack:
        # As Ctrl-C: 'timeout' and those who keep services end them so.
        stack.callback(signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, signal.default_int_handler))
        store = stack.enter_context(Store(at))
        trials = store.trials()
        _check_same(at, store.last_run(), trials, flow, replicas)
        _check_alike(at, trials, spec, program, asked)
        if budget is None:
            done, total = len(wanted & {one.key for one in trials if one.rows_per_s is not None}), len(wanted)
        else:
            done, total = with_result(trials), budget
        run = RunStart(
            dataflow=flow.name, kind="study", flow_file=spec, pid=os.getpid(), master="-", started_s=time.time()
        )
        store.begin_run(run)

        def ended(kind: type[BaseException] | None, *_: object) -> None:
            store.end_run(at_s=time.time(), reason="all trials are made" if kind is None else "interrupted")

        stack.push(ended)
        if done < total:
            up = _cluster(stack, cluster_dir, at, max(executors), asked)
            shown = stack.enter_context(_Shown(total, done=done, quiet=as_json))
            study = MstStudy(
                app=flow.name,
                fresh=_fresh(stack, flow, up, at),
                store=store,
                clock=time,
                saturation=Saturation(every_s=every_s),
                bisection=Bisection(every_s=every_s),
                slots_each=asked.slots,
                bytes_per_row=_row_bytes(flow, at),
                by=_by(replicas, every_s, max(executors)),
                program=program,
                memory_mb=asked.memory_mb,
            )
            if budget is not None:
                study.spend(budget, executors, predict=max((*predict, *executors)), on=shown.trial)
            else:
                study.run(executors, repeats=repeats, paced=paced, on=shown.trial)
    _print(at, tuple(sorted({*executors, *predict})), level, as_json)


def _check_same(at: Path, run: RunStart | None, trials: list[Trial], flow: Dataflow, by: str) -> None:
    """Trials of other things do not make one curve."""
    from penstock.dataflow.errors import PenstockError

    if run is not None and run.dataflow != flow.name:
        raise PenstockError(f"'{at}' is a study of '{run.dataflow}', not of '{flow.name}'; give another --at")
    for trial in trials:
        if trial.replicas_by != by:
            raise PenstockError(
                f"'{at}' has trials with replicas by {trial.replicas_by}, not by {by} as are asked for; give another "
                f"--at, or --replicas {trial.replicas_by}"
            )


def _check_alike(at: Path, trials: list[Trial], spec: str, program: str, asked: Asked) -> None:
    """Those with a result are to be of this very program, on such executors."""
    from penstock.dataflow.errors import PenstockError

    for trial in trials:
        if trial.rows_per_s is None:
            continue
        if trial.plan.slots != trial.executors * asked.slots:
            raise PenstockError(
                f"'{at}' has trials with {trial.plan.slots // trial.executors} slots an executor, not {asked.slots} as "
                "are asked for; give another --at, or the same --slots"
            )
        if trial.memory_mb not in (None, asked.memory_mb):
            raise PenstockError(
                f"'{at}' has trials with {trial.memory_mb} MB an executor, not {asked.memory_mb} as are asked for; "
                "give another --at, or the same --memory-mb"
            )
        if trial.program not in (None, program):
            raise PenstockError(
                f"'{at}' has trials of an earlier {spec}: its code, or that of a module beside it, has changed since; "
                "give another --at to measure anew"
            )


def _check_sources(flow: Dataflow, *, paced: bool) -> None:
    """Before hours of trials, not after them."""
    from penstock.dataflow.errors import PenstockError
    from penstock.dataflow.sources import Generate, Replay, SparkSource

    for one in flow.operators:
        source = one.source
        if isinstance(source, SparkSource):
            raise PenstockError(
                f"source '{one.name}' is a DataFrame of yours, which does not tell what waits, so nobody knows whether "
                "it is the limit; measure with ps.kafka, ps.replay, ps.generate or ps.backlog instead"
            )
        if (
            paced
            and source is not None
            and not (isinstance(source, Generate | Replay) and source.rows_per_s is not None)
        ):
            raise PenstockError(
                f"--paced sets the rate of source '{one.name}', which has none that can be set; leave --paced out, or "
                "declare it with ps.generate or ps.replay and rows_per_s"
            )


@click.command()
@click.argument("study", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--executors", type=Counts(required=True), required=True, help="Counts to predict: 8,16,32.")
@_LEVEL
@_JSON
def predict(study: Path, executors: tuple[int, ...], level: float, as_json: bool) -> None:
    """What so many executors would sustain, by the trials in DIR.

    \b
    Example:
      penstock mst predict studies/wc --executors 8,16,32
    """
    _print(study, executors, level, as_json, curve=True)


def _cluster(stack: ExitStack, directory: Path | None, at: Path, workers: int, asked: Asked) -> Cluster:
    from penstock.engines.spark import cluster

    if directory is not None:
        up = cluster.running(directory)
        if up.record.asked.workers < workers:  # a trial without its executors has no result
            raise cluster.ClusterError(
                f"--executors asks for {workers}, and the cluster in '{directory}' has {up.record.asked.workers} "
                "workers; ask for fewer, or leave --cluster out and it starts its own"
            )
        return up
    return stack.enter_context(cluster.start(at / "cluster", asked, dies_with_me=True))


def _fresh(stack: ExitStack, flow: Dataflow, up: Cluster, at: Path) -> Callable[[Wanted, int], RunnableEngine]:
    import shutil

    from penstock.engines.spark.engine import SparkEngine
    from penstock.engines.spark.reading.batch_sizer import copy_learned_sizes
    from penstock.engines.spark.session import end, session
    from penstock.study.mst.replicas import plan_for

    spark = session(up.master, "penstock mst", up.confs)
    stack.callback(end, spark)
    shutil.rmtree(at / "trials", ignore_errors=True)  # of trials that were interrupted
    before: list[Path] = []

    def fresh(wanted: Wanted, run: int) -> RunnableEngine:
        folder = at / "trials" / f"{wanted.study.replace(' ', '-')}-{wanted.executors}-{wanted.repeat}-{run}"
        for last in before[-1:]:
            copy_learned_sizes(last, folder)  # how large batches may be need not be found out again
        before.append(folder)
        plan = wanted.plan or plan_for(flow, wanted.executors, up.record.asked.slots)
        return SparkEngine(flow, folder, spark=spark, plan=plan)

    return fresh


def _by(replicas: str, every_s: float, workers: int) -> ReplicaPolicy | None:
    """The policy without guards: a trial has nothing to lose by a change."""
    from penstock.control.controller import Settings
    from penstock.control.policies.drs import Drs
    from penstock.control.policies.drs.problem import DrsSettings, LeastLatency
    from penstock.control.policies.stela import Stela
    from penstock.control.policies.threshold import Threshold
    from penstock.measure.smoothing import MovingAverage
    from penstock.store import REPLICAS_BY_RULE
    from penstock.study.mst.replica_search import ReplicaPolicy

    if replicas == REPLICAS_BY_RULE:
        return None
    policies: dict[str, Policy] = {
        "drs": Drs(DrsSettings(goal=LeastLatency())),
        "stela": Stela(attempts=workers),
        "threshold": Threshold(),
    }
    settings = Settings(mode="active", smoothing=MovingAverage(2), micro_batch=True, warm_up_s=2 * every_s)
    return ReplicaPolicy(policy=policies[replicas], settings=settings)


def _row_bytes(flow: Dataflow, at: Path) -> float | None:
    from penstock.engines.spark.sources.factory import row_bytes

    found: float | None = row_bytes(flow, at / "trials" / "sources")
    return found


class _Shown:
    """A bar with the time that is left, and a line for each trial."""

    def __init__(self, total: int, *, done: int, quiet: bool) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=quiet),  # where JSON goes nothing else does
            disable=quiet,
        )
        self._task = self._bar.add_task("trials", total=total, completed=done)

    def trial(self, trial: Trial, done: int, total: int) -> None:
        result = "no result" if trial.rows_per_s is None else f"{trial.rows_per_s:.4g} rows/s"
        why = "" if trial.why is None else f" ({trial.why})"
        took_s = trial.ended_s - trial.began_s
        self._bar.console.print(
            f"{trial.study}, {trial.executors} executors, {trial.repeat + 1}.: {result}{why}, {took_s:.0f} s",
            highlight=False,
        )
        self._bar.update(self._task, completed=done)

    def __enter__(self) -> _Shown:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()


def _print(study: Path, executors: tuple[int, ...], level: float, as_json: bool, *, curve: bool = False) -> None:
    from penstock.dataflow.errors import PenstockError
    from penstock.report.mst_results import mst_fit
    from penstock.store import StoreReader
    from penstock.study.mst.design import PACED, SATURATED
    from penstock.study.mst.model import model_of, samples_in

    samples = samples_in(study)
    with StoreReader(study) as store:
        trials = [one for one in store.trials() if one.rows_per_s is not None]
    # One count makes no curve, but it was measured.
    report = None
    if len(samples.vms) > 1:
        model = model_of(samples, trials, max(executors, default=1))
        report = mst_fit(model, samples, predict=executors, level=level)
    elif curve:
        raise PenstockError(
            f"'{study}' has trials on {samples.vms[0]} executors only; a curve needs two counts: measure another"
        )
    if as_json:
        import msgspec

        fitted = {} if report is None else msgspec.to_builtins(report)
        kept = ("study", "executors", "repeat", "rows_per_s", "bytes_per_s", "settled", "why", "replicas_by")
        found = fitted | {"trials": [{name: getattr(one, name) for name in kept} for one in trials]}
        click.echo(msgspec.json.format(msgspec.json.encode(found)).decode())
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("executors", "rows/s", f"{level:.0%} interval", "measured", "paced", "MB/s")
    said = {} if report is None else {one.vms: one for one in report.predictions}
    for count in executors:
        one, of = said.get(count), [trial for trial in trials if trial.executors == count]
        saturated = [trial for trial in of if trial.study == SATURATED]
        table.add_row(
            str(count),
            "" if one is None else f"{one.throughput:.4g}",
            "" if one is None else f"{one.low:.4g} to {one.high:.4g}",
            ", ".join(map(_measured, saturated)),
            ", ".join(_measured(trial) for trial in of if trial.study == PACED),
            ", ".join(f"{trial.bytes_per_s / 1e6:.3g}" for trial in saturated if trial.bytes_per_s is not None),
        )
    console = Console()
    console.print(table)
    if any(not trial.settled for trial in trials if trial.executors in executors):
        console.print(f"? did not settle, so take it with care; 'penstock report {study}' says why", highlight=False)
    if report is None:
        console.print("one count makes no curve: measure another to predict", highlight=False)
    else:
        console.print(f"by {report.model}, fitted to {list(samples.vms)} executors", highlight=False)


def _measured(trial: Trial) -> str:
    return f"{trial.rows_per_s:.4g}{'' if trial.settled else '?'}"
