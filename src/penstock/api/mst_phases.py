"""`penstock.choose_training_counts`: phase 1 of the MST paper, whose result `measure_mst` uses in phase 2."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from penstock.api.input_files import dataflow_from, read_text
from penstock.api.mst_measurement import StudyProgress, measure_mst
from penstock.api.mst_models import choose_vm_counts
from penstock.api.policy_options import OptionError
from penstock.dataflow import Dataflow
from penstock.dataflow.argument_types import checked_types
from penstock.dataflow.errors import PenstockError
from penstock.dataflow.local_paths import local_directory

if TYPE_CHECKING:
    from penstock.report.mst_results import VmCountChoice

CHOICE_FILE = "training-counts.json"


@checked_types(OptionError)
def choose_training_counts(
    flows: Sequence[Dataflow | str],
    *,
    executors: Sequence[int],
    max_executors: int,
    at: str | Path,
    sizes: Sequence[int] = (2, 3, 4, 5),
    repeats: int = 1,
    cluster: str | Path | None = None,
    executor_cores: int = 2,
    executor_memory_mb: int = 1024,
    window_s: float = 5.0,
    on_progress: Callable[[StudyProgress], None] | None = None,
) -> VmCountChoice:
    """Measure some dataflows on all numbers of executors, and choose the numbers that suffice for other dataflows.

    The chosen numbers are those from which Models 1 and 2 predict the other numbers best. They are stored in the
    directory; `measure_mst(flow, training=directory)` measures another dataflow on them only. An interrupted
    study continues with the same call.

    Args:
        flows: Dataflows with different needs, such as one that computes, one that only moves rows, and one with state.
        executors: Numbers of executors to measure.
        max_executors: Largest number that may be chosen: the budget of later studies.
        at: Directory of the study; each dataflow gets a directory in it.
        sizes: Allowed numbers of chosen counts.
        repeats: Number of trials for each number of executors.
        cluster: Directory of a running cluster; see `measure_mst`.
        executor_cores: Slots of an executor.
        executor_memory_mb: Memory of an executor.
        window_s: Length of a measurement window.
        on_progress: Called at the start of each dataflow and after each trial.

    Raises:
        OptionError: There are too few numbers of executors, or an option is invalid.
        PenstockError: A dataflow cannot be measured.
    """
    directory = local_directory(at)
    names = [dataflow_from(flow).name for flow in flows]
    if not names or len(set(names)) < len(names):
        raise OptionError(f"The dataflows are {', '.join(names) or 'missing'}; give one or more with different names.")
    allowed = [count for count in set(executors) if count <= max_executors]
    if len(allowed) < min(sizes, default=1) or len(set(executors)) <= min(sizes, default=1):
        raise OptionError(
            f"Of {len(set(executors))} numbers of executors, {len(allowed)} are within the limit of {max_executors}; "
            f"give at least {min(sizes, default=1)} within it, and one more to test on."
        )
    for flow, name in zip(flows, names, strict=True):
        measure_mst(
            flow,
            executors=executors,
            repeats=repeats,
            at=directory / name,
            cluster=cluster,
            executor_cores=executor_cores,
            executor_memory_mb=executor_memory_mb,
            window_s=window_s,
            on_progress=on_progress,
        )
    choice = choose_vm_counts([directory / name for name in names], max_vms=max_executors, sizes=sizes)
    (directory / CHOICE_FILE).write_bytes(msgspec.json.encode(choice))
    return choice


def chosen_counts(study: str | Path) -> tuple[int, ...]:
    """Return the numbers of executors that `choose_training_counts` chose; raise PenstockError if there are none."""
    from penstock.report.mst_results import VmCountChoice

    file = local_directory(study) / CHOICE_FILE
    if not file.exists():
        raise PenstockError(f"'{study}' has no chosen numbers of executors; run 'penstock mst choose' first.")
    try:
        return tuple(msgspec.json.decode(read_text(file), type=VmCountChoice).vms)
    except msgspec.MsgspecError as error:
        raise PenstockError(f"'{file}' is damaged ({error}); run 'penstock mst choose' again.") from None
