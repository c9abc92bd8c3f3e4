"""The behaviour of a simulated dataflow, from a file or from the measurements of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from penstock.api.input_files import read_file
from penstock.api.policy_options import OptionError
from penstock.api.record import RunRecord, open_run
from penstock.dataflow import Dataflow

if TYPE_CHECKING:
    from penstock.engines.simulated import Behaviour

_BATCH_S = 2.0  # duration of a batch while rows are waiting, as in a run
_SEARCHED_WINDOWS, _USED_WINDOWS = 2_000, 10  # a finished run often ends with windows without rows


def record_of_costs(behaviour: Behaviour | str | Path | None, like: RunRecord | str | Path | None) -> RunRecord | None:
    """Return the record of the run `like`; None if a behaviour is given. Raises OptionError unless one is given."""
    if (like is None) == (behaviour is None):
        raise OptionError(
            "The cost of the operators is required: give either behaviour (--behaviour) or like (--like), and not both."
        )
    return like if isinstance(like, RunRecord) else None if like is None else open_run(like)


def operator_costs(flow: Dataflow, behaviour: Behaviour | str | Path | None, record: RunRecord | None) -> Behaviour:
    """Return the given behaviour, or the costs that a run measured in its latest windows with rows."""
    from penstock.engines.simulated import Behaviour

    if record is not None:
        return _costs_like(flow, record)
    if isinstance(behaviour, Behaviour):
        return behaviour
    assert behaviour is not None
    return Behaviour.from_json(read_file(Path(behaviour), "behaviour"))


def limited_batches(costs: Behaviour) -> Behaviour:
    """Limit the duration of batches if nothing else does: otherwise one batch would contain all rows of an overload."""
    batch = costs.batch
    if batch.target_s is not None or batch.max_rows is not None:
        return costs
    return costs.replace(batch=msgspec.structs.replace(batch, target_s=_BATCH_S))


def _costs_like(flow: Dataflow, record: RunRecord) -> Behaviour:
    from penstock.engines.simulated import BehaviourError
    from penstock.engines.simulated.calibration import behaviour_from_window
    from penstock.measure.smoothing import merged
    from penstock.store import StoreReader

    with StoreReader(record.directory) as store:
        recent = [window for _, window in store.windows(last=_SEARCHED_WINDOWS)]
    rows = [float(sum(operator.rows_in or 0 for operator in window.operators)) for window in recent]
    used = [(window, count) for window, count in zip(recent, rows, strict=True) if count][-_USED_WINDOWS:]
    if not used:
        raise BehaviourError(
            f"The run in '{record.directory}' has not processed any rows; let it run longer, or give a behaviour file."
        )
    return behaviour_from_window(flow, merged(*zip(*used, strict=True)))
