"""`penstock mst`: measure, fit and predict the maximum sustainable throughput (MST)."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import click

from penstock.api.mst_measurement import BY_RULE, REPLICA_METHODS
from penstock.cli.parameters import PLOT, SHARE, Counts, Finite

if TYPE_CHECKING:
    from penstock.api.mst_measurement import StudyProgress
    from penstock.models.mst.curve_selection import Choose
    from penstock.report.mst_results import MstFits, MstMeasurement, TrialResult, VmCountChoice

_SEED = click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the random numbers."
)
_LEVEL = click.option(
    "--level", type=SHARE, default=0.9, show_default=True, help="Probability that a new sample is inside the interval."
)
_CHOOSE = click.option(
    "--choose",
    type=click.Choice(["mean", "training", "leave-one-out"]),
    default="mean",
    show_default=True,
    help="Choice without validation counts: a mean of all models, or the model with the smallest error of this kind.",
)
_MODELS = click.option(
    "--model",
    "models",
    metavar="NAME",
    multiple=True,
    help="Candidate model, such as model1, model2, linear (ElasticStream) or mean; may be repeated.  [default: all but "
    "the last two]",
)
_CLUSTER = click.option(
    "--cluster", type=click.Path(path_type=Path), help="Directory of a running cluster.  [default: a new one]"
)
_CORES = click.option(
    "--executor-cores", type=click.IntRange(min=1), default=2, show_default=True, help="Cores of a new executor."
)
_MEMORY = click.option(
    "--memory-mb", type=click.IntRange(min=1), default=1024, show_default=True, help="Memory of a new executor."
)
_WINDOW = click.option(
    "--window-s",
    type=Finite(min=0.1),
    default=5.0,
    show_default=True,
    help="Length of a measurement window in seconds.",
)
_REPEATS = click.option(
    "--repeats", type=click.IntRange(min=1), default=1, show_default=True, help="Trials per executor count."
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


_ERRORS = {
    "mean": "of the larger counts predicted from the smaller ones",
    "training": "at the counts for fitting",
    "leave-one-out": "of each count predicted from all others",
}


@click.group()
def command() -> None:
    """Maximum sustainable throughput (MST) by VM or executor count.

    \b
    Example:
      penstock mst measure wordcount.py --executors 1,2,3 --predict 5,6
      penstock mst fit samples.csv --predict 48,64,128
      penstock mst subset samples.csv --max-vms 24
      penstock mst choose wordcount.py sort.py relay.py --executors 1,2,3,4 --max-executors 3 --at studies/chosen
    """


@command.command()
@click.argument("flow", metavar="FILE[:FLOW]")
@click.option("--executors", type=Counts(required=True), default=(), help="Executor counts to measure, such as 1,2,3.")
@click.option(
    "--training",
    type=click.Path(path_type=Path),
    help="Measure the counts that 'penstock mst choose' chose in this directory.",
)
@_REPEATS
@click.option(
    "--budget",
    type=click.IntRange(min=2),
    help="Total trials, each at the most uncertain executor count.",
)
@click.option(
    "--validate",
    type=click.IntRange(min=2),
    metavar="MAX",
    help="Also measure the counts up to MAX at which the models begin to differ; they select the model.",
)
@click.option("--paced", is_flag=True, help="Also search for the highest sustained rate of paced sources.")
@click.option(
    "--replicas",
    type=click.Choice(REPLICA_METHODS),
    default=BY_RULE,
    show_default=True,
    help="Set replicas by the paper's rule or by a policy.",
)
@click.option("--predict", type=Counts(), default=(), help="Executor counts to predict.")
@click.option(
    "--at", type=click.Path(path_type=Path, file_okay=False), help="Study directory.  [default: studies/<flow>]"
)
@_CLUSTER
@_CORES
@_MEMORY
@_WINDOW
@_CHOOSE
@_MODELS
@_LEVEL
@_JSON
def measure(
    flow: str,
    executors: tuple[int, ...],
    training: Path | None,
    repeats: int,
    budget: int | None,
    validate: int | None,
    paced: bool,
    replicas: str,
    predict: tuple[int, ...],
    at: Path | None,
    cluster: Path | None,
    executor_cores: int,
    memory_mb: int,
    window_s: float,
    choose: Choose,
    models: tuple[str, ...],
    level: float,
    as_json: bool,
) -> None:
    """Measure the rate that a dataflow sustains on each number of executors, fit a model, and predict other numbers.

    Sources are accelerated until there is always a backlog. Preloaded sources (a topic, files without a rate) are read
    repeatedly. Sinks compute everything and write nothing. Each trial is stored when it ends; the same command
    continues an interrupted study.

    \b
    Example:
      penstock mst measure wordcount.py --executors 1,2,3 --repeats 3 --predict 5,6
      penstock mst measure wordcount.py --executors 1,2,3,4 --budget 6 --at studies/wc
      penstock mst measure wordcount.py --executors 1,2,3 --validate 6
      penstock mst measure wordcount.py --training studies/chosen --predict 8
      penstock mst measure wordcount.py --executors 1,2,3 --replicas drs --at studies/wc-drs
    """
    from penstock.api.mst_measurement import measure_mst

    with TrialProgressBar(quiet=as_json) as progress:
        result = measure_mst(
            flow,
            executors=executors,
            training=training,
            repeats=repeats,
            budget=budget,
            validate=validate,
            paced=paced,
            replicas=replicas,
            predict=predict,
            at=at,
            cluster=cluster,
            executor_cores=executor_cores,
            executor_memory_mb=memory_mb,
            window_s=window_s,
            models=models,
            choose=choose,
            level=level,
            on_progress=progress.show,
        )
    _print_measurement(result, tuple(sorted({*result.measured, *predict})), level, as_json=as_json)


@command.command("choose")
@click.argument("flows", metavar="FILE[:FLOW]...", nargs=-1, required=True)
@click.option("--executors", type=Counts(required=True), required=True, help="Executor counts to measure.")
@click.option("--max-executors", type=click.IntRange(min=1), required=True, help="Largest count that may be chosen.")
@click.option(
    "--sizes", type=Counts(), default=(2, 3, 4, 5), help="Allowed numbers of chosen counts.  [default: 2,3,4,5]"
)
@click.option("--at", type=click.Path(path_type=Path, file_okay=False), required=True, help="Directory of all studies.")
@_REPEATS
@_CLUSTER
@_CORES
@_MEMORY
@_WINDOW
@_JSON
def choose_counts(
    flows: tuple[str, ...],
    executors: tuple[int, ...],
    max_executors: int,
    sizes: tuple[int, ...],
    at: Path,
    repeats: int,
    cluster: Path | None,
    executor_cores: int,
    memory_mb: int,
    window_s: float,
    as_json: bool,
) -> None:
    """Measure some dataflows, and choose the executor counts on which it suffices to measure another one.

    'penstock mst measure --training DIR' measures the chosen counts. The same command continues an interrupted study.

    \b
    Example:
      penstock mst choose wordcount.py sort.py relay.py --executors 1,2,3,4 --max-executors 3 --at studies/chosen
    """
    from penstock.api.mst_phases import choose_training_counts

    with TrialProgressBar(quiet=as_json) as progress:
        result = choose_training_counts(
            flows,
            executors=executors,
            max_executors=max_executors,
            sizes=sizes,
            at=at,
            repeats=repeats,
            cluster=cluster,
            executor_cores=executor_cores,
            executor_memory_mb=memory_mb,
            window_s=window_s,
            on_progress=progress.show,
        )
    _print_choice(result, seed=0, as_json=as_json)


@command.command()
@click.argument("study", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--executors", type=Counts(required=True), required=True, help="Executor counts to predict, such as 8,16."
)
@_CHOOSE
@_MODELS
@_LEVEL
@_JSON
def predict(
    study: Path, executors: tuple[int, ...], choose: Choose, models: tuple[str, ...], level: float, as_json: bool
) -> None:
    """Predict the throughput of other executor counts from the trials in DIR.

    \b
    Example:
      penstock mst predict studies/wc --executors 8,16,32
      penstock mst predict studies/wc --executors 8,16,32 --model linear
    """
    from penstock.api.mst_measurement import predict_mst

    result = predict_mst(study, executors=executors, level=level, models=models, choose=choose)
    _print_measurement(result, executors, level, as_json=as_json)


@command.command()
@click.argument("samples", type=click.Path(path_type=Path))
@click.option("--predict", type=Counts(), default=(), help="VM counts to predict.  [default: the measured counts]")
@click.option("--app", help="Fit this application only.")
@click.option(
    "--validate",
    type=Counts(),
    default=(),
    help="VM counts that select one model.  [default: none; see --choose]",
)
@_CHOOSE
@_MODELS
@click.option("--step", type=Finite(min=0), default=0.0, help="VMs that give each parallel unit another thread.")
@_LEVEL
@_SEED
@PLOT
@_JSON
def fit(
    samples: Path,
    predict: tuple[int, ...],
    app: str | None,
    validate: tuple[int, ...],
    choose: Choose,
    models: tuple[str, ...],
    step: float,
    level: float,
    seed: int,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Fit a model to each application in SAMPLES (CSV: app,vms,throughput), and predict.

    \b
    Example:
      penstock mst fit samples.csv --app grep --predict 48,64,128 --plot grep.html
      penstock mst fit samples.csv --choose training --model model1 --model model2
    """
    from penstock.api.mst_models import fit_mst

    result = fit_mst(
        samples,
        predict=predict,
        app=app,
        validate=validate,
        step=step,
        level=level,
        seed=seed,
        models=models,
        choose=choose,
        plot=plot,
    )
    if as_json:
        _print_json(result)
    else:
        _print_fits(result, level)


@command.command()
@click.argument("samples", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--max-vms", type=click.IntRange(min=1), required=True, help="Largest VM count to measure.")
@click.option("--sizes", type=Counts(), default=(3, 4, 5), help="Sizes of the subsets.  [default: 3,4,5]")
@_SEED
@_JSON
def subset(samples: tuple[Path, ...], max_vms: int, sizes: tuple[int, ...], seed: int, as_json: bool) -> None:
    """Choose the VM counts to measure: the models predict the other counts of SAMPLES best from them.

    SAMPLES are CSV files (app,vms,throughput) or directories of studies.

    \b
    Example:
      penstock mst subset samples.csv --max-vms 24
      penstock mst subset studies/wordcount studies/sort --max-vms 3 --sizes 2
    """
    from penstock.api.mst_models import choose_vm_counts

    _print_choice(choose_vm_counts(samples, max_vms=max_vms, sizes=sizes, seed=seed), seed=seed, as_json=as_json)


class TrialProgressBar:
    """A progress bar with the remaining time, and one line per trial. `quiet` writes to stderr, without the bar."""

    def __init__(self, *, quiet: bool) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=quiet),
            disable=quiet,
        )
        self._task = self._bar.add_task("trials", total=None)

    def show(self, progress: StudyProgress) -> None:
        trial = progress.trial
        if trial is not None:
            result = "no result" if trial.rows_per_s is None else f"{trial.rows_per_s:.4g} rows/s"
            reason = "" if trial.reason is None else f" ({trial.reason})"
            name = f"{trial.study} #{trial.repeat + 1}, {trial.executors} executors"
            self._bar.console.print(f"{name}: {result}{reason}, {trial.ended_s - trial.began_s:.0f} s", highlight=False)
        self._bar.update(self._task, completed=progress.done, total=progress.total)
        if progress.done < progress.total:
            self._bar.start()

    def __enter__(self) -> TrialProgressBar:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._bar.stop()


def _print_measurement(result: MstMeasurement, executors: tuple[int, ...], level: float, *, as_json: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    if as_json:
        _print_json(result)
        return
    table = Table("executors", "rows/s", f"{level:.0%} interval", "measured", "paced", "MB/s")
    predictions = {} if result.fit is None else {prediction.vms: prediction for prediction in result.fit.predictions}
    for count in executors:
        prediction = predictions.get(count)
        trials = [trial for trial in result.trials if trial.executors == count]
        saturated = [trial for trial in trials if not trial.paced]
        table.add_row(
            str(count),
            "" if prediction is None else f"{prediction.throughput:.4g}",
            "" if prediction is None else f"{prediction.low:.4g} to {prediction.high:.4g}",
            ", ".join(map(_rate, saturated)),
            ", ".join(_rate(trial) for trial in trials if trial.paced),
            ", ".join(f"{trial.bytes_per_s / 1e6:.3g}" for trial in saturated if trial.bytes_per_s is not None),
        )
    console = Console(highlight=False)
    console.print(table)
    if any(not trial.converged for trial in result.trials if trial.executors in executors):
        console.print(f"? did not converge; 'penstock report {result.directory}' shows why")
    if result.fit is None:
        console.print("A prediction needs a second executor count; measure another one.")
    else:
        console.print(f"model {result.fit.model}, fitted to {list(result.measured)} executors")


def _rate(trial: TrialResult) -> str:
    return f"{trial.rows_per_s:.4g}{'' if trial.converged else '?'}"


def _print_choice(result: VmCountChoice, *, seed: int, as_json: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    if as_json:
        _print_json(result)
        return
    table = Table("VM counts", "RMSE (share of the largest sample)", "subsets tried")
    tried = f"{result.tried}" if result.exhaustive else f"{result.tried} of {result.subsets}, drawn with seed {seed}"
    table.add_row(", ".join(map(str, result.vms)), f"{result.rmse:.4f}", tried)
    Console().print(table)


def _print_fits(result: MstFits, level: float) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("app", "model", "VMs", "MST", f"{level:.0%} interval", "measured")
    for app in result.apps:
        for row, prediction in enumerate(app.predictions):
            used_for = (
                "for selection"
                if prediction.vms in app.validated
                else "for fitting"
                if prediction.vms in app.trained
                else ""
            )
            name, model = (app.app, app.model) if row == 0 else ("", "")
            interval = f"{prediction.low:.4g} to {prediction.high:.4g}"
            table.add_row(name, model, str(prediction.vms), f"{prediction.throughput:.4g}", interval, used_for)
        table.add_section()
    console = Console(highlight=False)
    console.print(table)
    for app in result.apps:
        errors = ", ".join(f"{name} {error:.1%}" for name, error in sorted(app.errors.items(), key=lambda e: e[1]))
        method = f"on {app.validated} VMs" if app.validated else _ERRORS[app.choose]
        console.print(f"{app.app}: errors {method}: {errors}")
        if len(app.shares) > 1:
            shares = ", ".join(f"{name} {share:.0%}" for name, share in sorted(app.shares.items(), key=lambda s: -s[1]))
            console.print(f"{app.app}: shares of the models in the prediction: {shares}")
        if app.measure_next:
            console.print(f"{app.app}: measure {app.measure_next} VMs next; the models differ there")


def _print_json(result: object) -> None:
    import msgspec

    click.echo(msgspec.json.format(msgspec.json.encode(result)).decode())
