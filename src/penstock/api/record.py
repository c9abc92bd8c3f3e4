"""`penstock.open_run`: the record of a run, during or after the run, in this process or in another one."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.api.input_files import plan_from
from penstock.api.notebook import html_grid, html_table
from penstock.dataflow.errors import PenstockError
from penstock.dataflow.local_paths import local_directory
from penstock.plan.plan import Plan, Threads, threads_text

if TYPE_CHECKING:
    import pandas as pd

    from penstock.control.requests import Answer, Request
    from penstock.control.whatif import WhatIf
    from penstock.dataflow import Dataflow
    from penstock.measure.window import Window
    from penstock.report.mst_curve import MstCurve
    from penstock.report.run_report import RunReport
    from penstock.report.status import RunStatus
    from penstock.store import DecisionRecord

REQUEST_TIMEOUT_S = 120.0
_LATEST_TRIALS = 10  # shown in a notebook


def open_run(at: str | Path, *, largest_platform: bool = False) -> RunRecord:
    """Open the record of the run, study, simulation or watched program in the directory `at`.

    Args:
        at: Directory of the record.
        largest_platform: If the directory contains profiles on several platforms instead of a record, open that of the
            largest platform.

    Raises:
        StoreError: The directory contains no record.
    """
    from penstock.store import StoreError, StoreReader
    from penstock.store.schema import FILE

    directory = local_directory(at)
    if largest_platform and not (directory / FILE).exists():
        from penstock.report.profile_report import platform_studies

        for _, _, study in sorted(platform_studies(directory), key=lambda platform: -platform[1]):
            try:
                return open_run(study)
            except StoreError:
                continue  # its study has not begun
    if not (directory / FILE).exists() and _has_curves(directory):
        raise StoreError(
            f"'{at}' contains measured curves and no record of a run; read them with 'penstock curves list {at}' or "
            f"penstock.measured_curves({str(at)!r})."
        )
    StoreReader(directory).close()
    return RunRecord(at)


def _has_curves(directory: Path) -> bool:
    from penstock.study.curves.measured_curve import CurveStudyError, stored_curves

    try:
        return bool(stored_curves(directory))
    except CurveStudyError:
        return False


class RunRecord:
    """The record of a run in its directory. Each method reads the current content of the store.

    `rescale`, `apply`, `set_rate`, `set` and `stop` send a request to the process that runs the dataflow and wait for
    its answer. They raise `RequestError` if no process runs it, or if the request is refused.
    """

    def __init__(self, at: str | Path) -> None:
        self.directory = local_directory(at)

    # ---- reading

    def status(self) -> RunStatus:
        """Return the state, the plan, the latest window, and the latest plan changes and errors."""
        from penstock.report.status import run_status
        from penstock.store import StoreReader

        with StoreReader(self.directory) as reader:
            return run_status(self.directory, reader)

    @property
    def plan(self) -> Plan | None:
        """The plan in force; None until the run has started."""
        return self.status().plan

    def windows(self, *, last: int | None = None) -> pd.DataFrame:
        """Return one row per window: input rate, backlog and latency. `last` limits it to the latest windows."""
        from penstock.api.frames import windows_frame
        from penstock.store import StoreReader

        with StoreReader(self.directory) as reader:
            return windows_frame(reader.iter_windows() if last is None else reader.windows(last=last))

    def operators(self, *, last: int | None = None) -> pd.DataFrame:
        """Return one row per window and operator: rates, cost per row, utilisation, backlog and state."""
        from penstock.api.frames import operators_frame
        from penstock.store import StoreReader

        with StoreReader(self.directory) as reader:
            return operators_frame(reader.iter_windows() if last is None else reader.windows(last=last))

    def rows(self, sink: str) -> list[dict[str, Any]]:
        """Return the rows of a memory sink.

        Raises:
            PenstockError: The run has no memory sink of this name, or has not started it yet.
        """
        from penstock.engines.spark.sinks.writers import memory_rows

        sinks = sorted(folder.name for folder in self.directory.glob("memory/*"))
        if sink not in sinks:
            raise PenstockError(
                f"The run in '{self.directory}' has no rows of a memory sink '{sink}'; its memory sinks are "
                f"{', '.join(sinks) or 'none'}."
            )
        return memory_rows(self.directory.resolve(), sink)

    def decisions(self, *, changes_only: bool = False, last: int | None = None) -> pd.DataFrame:
        """Return one row per decision of the policy, with the reason, the expected and the observed latency."""
        from penstock.api.frames import decisions_frame

        return decisions_frame(self.decision_rows(changes_only=changes_only, last=last)[0])

    def decision_rows(
        self, *, changes_only: bool = False, last: int | None = None
    ) -> tuple[list[tuple[int, DecisionRecord]], int]:
        """Return the numbered decisions as values, and the number of all decisions in the record."""
        from penstock.store import StoreReader

        total, kept = 0, deque[tuple[int, "DecisionRecord"]](maxlen=last)
        with StoreReader(self.directory) as reader:
            for number, row in reader.iter_decisions():
                total += 1
                if row.kind == "change" or not changes_only:
                    kept.append((number, row))
        return list(kept), total

    def plan_changes(self) -> pd.DataFrame:
        """Return one row per plan change, whether it was applied or rolled back."""
        from penstock.api.frames import plan_changes_frame
        from penstock.store import StoreReader

        with StoreReader(self.directory) as reader:
            return plan_changes_frame(reader.plan_changes())

    def errors(self) -> pd.DataFrame:
        """Return one row per recorded error."""
        from penstock.api.frames import errors_frame
        from penstock.store import StoreReader

        with StoreReader(self.directory) as reader:
            return errors_frame(reader.errors())

    def trials(self) -> pd.DataFrame:
        """Return one row per trial of a study ('penstock mst measure', 'penstock profile'), with its plan and rate."""
        from penstock.api.frames import trials_frame
        from penstock.store import StoreReader

        with StoreReader(self.directory) as reader:
            return trials_frame(reader.trials())

    def follow(self) -> Iterator[tuple[Window, Plan | None]]:
        """Yield the latest window, then each new one with the plan in force, until the run ends."""
        from penstock.report.status import follow_windows
        from penstock.store import StoreReader

        with StoreReader(self.directory) as reader:
            for window in follow_windows(self.directory, reader):
                yield window, reader.plan()

    # ---- reports

    def report(
        self,
        path: str | Path | None = None,
        *,
        price_per_slot_hour: float | None = None,
        study: str | Path | None = None,
        as_json: bool = False,
    ) -> Path:
        """Write the report as one HTML file and return its path, by default `report.html` in the run's directory.

        Args:
            path: File to write.
            price_per_slot_hour: Price of a slot, which adds the cost of the run to the report.
            study: Directory of a throughput study, whose curve is added.
            as_json: Write the data of the report as JSON instead.
        """
        from penstock.report.page import write_page

        target = self.directory / "report.html" if path is None else local_directory(path)
        write_page(target, self.report_text(price_per_slot_hour=price_per_slot_hour, study=study, as_json=as_json))
        return target

    def report_text(
        self, *, price_per_slot_hour: float | None = None, study: str | Path | None = None, as_json: bool = False
    ) -> str:
        """Return the report as text in HTML or JSON."""
        import msgspec

        from penstock.report.page import run_page

        data = self.report_data(price_per_slot_hour=price_per_slot_hour, study=study)
        return msgspec.json.format(msgspec.json.encode(data)).decode() if as_json else run_page(data)

    def report_data(self, *, price_per_slot_hour: float | None = None, study: str | Path | None = None) -> RunReport:
        """Return the content of the report as a value."""
        from penstock.report.mst_curve import curves_in
        from penstock.report.run_report import run_report
        from penstock.store import StoreReader

        curves: tuple[MstCurve, ...] = ()
        if study is not None:
            with StoreReader(study) as study_reader:
                curves = curves_in(study_reader)
        with StoreReader(self.directory) as reader:
            return run_report(
                self.directory, reader, now_s=time.time(), price_per_slot_hour=price_per_slot_hour, mst=curves
            )

    def whatif(
        self,
        *,
        plan: Plan | str | Path | None = None,
        rate: float = 1.0,
        max_slots: int | None = None,
        executors: tuple[int, int] | None = None,
        latency_s: float | None = None,
        quantile: float | None = None,
        flow: Dataflow | str | None = None,
        seed: int = 0,
    ) -> WhatIf:
        """Replay this run in the simulator under another plan, load or limit; see `penstock.whatif`."""
        from penstock.api.whatif import whatif

        return whatif(
            self,
            plan=plan,
            rate=rate,
            max_slots=max_slots,
            executors=executors,
            latency_s=latency_s,
            quantile=quantile,
            flow=flow,
            seed=seed,
        )

    # ---- requests

    def rescale(self, *, timeout_s: float = REQUEST_TIMEOUT_S, **replicas: int) -> Answer:
        """Set the number of replicas of operators by name: `rescale(count=4, split=2)`. Required cuts are added.

        Use `rescale_operators` for threads and for names that are not Python identifiers.
        """
        return self.rescale_operators(replicas, timeout_s=timeout_s)

    def rescale_operators(self, replicas: Mapping[str, Threads], *, timeout_s: float = REQUEST_TIMEOUT_S) -> Answer:
        """Set the number of replicas of operators by name, or of threads: `{"count": 4, "lookup.threads": 64}`.

        `{"lookup.threads": (60, 60, 40)}` gives each of three replicas its own number, and rows in proportion to it.
        Threads change without a restart of a query, within half a second, also in a batch that is running. A query
        restarts if the shares of the rows change that its replicas receive.
        """
        from penstock.control.requests import Rescale

        return self._request(Rescale(replicas=dict(replicas)), timeout_s)

    def cut(self, *operators: str, timeout_s: float = REQUEST_TIMEOUT_S) -> Answer:
        """Cut after operators: `cut("split")` runs the operators behind `split` in a query of their own."""
        from penstock.control.requests import Recut

        return self._request(Recut(cut=operators), timeout_s)

    def fuse(self, *operators: str, timeout_s: float = REQUEST_TIMEOUT_S) -> Answer:
        """Remove the cut after operators: `fuse("split")` runs `split` and the operators behind it in one query."""
        from penstock.control.requests import Recut

        return self._request(Recut(fuse=operators), timeout_s)

    def apply(self, plan: Plan | str | Path, *, timeout_s: float = REQUEST_TIMEOUT_S) -> Answer:
        """Change to another plan, completely or not at all. A text or path is a JSON file."""
        from penstock.control.requests import Apply

        return self._request(Apply(plan=plan_from(plan)), timeout_s)

    def set_rate(self, source: str, rows_per_s: float, *, timeout_s: float = REQUEST_TIMEOUT_S) -> Answer:
        """Change the rate of a replayed or generated source."""
        from penstock.control.requests import Rate

        return self._request(Rate(source=source, rows_per_s=rows_per_s), timeout_s)

    def set(
        self,
        *,
        latency_s: float | None = None,
        release_below_s: float | None = None,
        max_slots: int | None = None,
        cooldown_s: float | None = None,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> Answer:
        """Change settings of the policy; those that are not given stay. A resumed run begins with those of its start.

        Args:
            latency_s: Latency target.
            release_below_s: Latency below which slots are released (policy drs).
            max_slots: Largest number of slots that the policy may use.
            cooldown_s: Smallest time between two plan changes.
            timeout_s: Time to wait for the answer.

        Raises:
            RequestError: No run is active, it has no policy, or the settings do not fit the policy.
        """
        from penstock.control.requests import RequestError, SetPolicy

        request = SetPolicy(
            latency_s=latency_s, release_below_s=release_below_s, max_slots=max_slots, cooldown_s=cooldown_s
        )
        if not request.given():
            raise RequestError("No setting is given; give a latency target, release limit, slot limit or cooldown.")
        return self._request(request, timeout_s)

    def stop(self, *, timeout_s: float | None = REQUEST_TIMEOUT_S) -> Answer:
        """Stop the run so that it can be resumed, and wait until its directory is free."""
        from penstock.control.requests import Stop, wait_until_gone

        limit_s = math.inf if timeout_s is None else timeout_s
        answer = self._request(Stop(), limit_s)
        wait_until_gone(self.directory, timeout_s=limit_s)
        return answer

    def _request(self, request: Request, timeout_s: float) -> Answer:
        from penstock.control.requests import ask

        return ask(self.directory, request, timeout_s=timeout_s)

    # ---- display

    def __repr__(self) -> str:
        try:
            status = self.status()
        except PenstockError as error:
            return f"<{type(self).__name__} '{self.directory}': {error}>"
        dataflow = "no dataflow" if status.run is None else status.run.dataflow
        return f"<{type(self).__name__} '{self.directory}': {dataflow}, {status.state}, {_content(status)}>"

    def _repr_html_(self) -> str:
        from penstock.report.formatting import count, seconds
        from penstock.report.live_table import operator_cells

        try:
            status = self.status()
        except PenstockError as error:
            return html_table(str(self.directory), [("error", error)])
        window = status.window
        latency = None if window is None else window.latency
        summary: list[tuple[str, object]] = [
            ("dataflow", "-" if status.run is None else status.run.dataflow),
            ("state", status.state),
        ]
        if status.run is not None and status.run.kind == "study":
            return html_table(str(self.directory), [*summary, ("trials", status.trials)]) + self._trials_html()
        summary += [
            ("windows", status.windows),
            ("plan", _plan_text(status.plan)),
            ("rows/s", count(None if window is None else window.external_rows_per_s)),
            ("latency p50", seconds(None if latency is None else latency.p50_s)),
            ("latency p95", seconds(None if latency is None else latency.p95_s)),
            ("latency standard deviation", seconds(None if latency is None else latency.sd_s)),
        ]
        html = html_table(str(self.directory), summary)
        if window is not None:
            headings = ("operator", "rows/s in", "rows/s out", "backlog", "cost/row", "replicas", "busy")
            span_s = window.end_s - window.start_s
            html += html_grid(
                "latest window", headings, [operator_cells(operator, span_s) for operator in window.operators]
            )
        return html

    def _trials_html(self) -> str:
        from penstock.report.formatting import count
        from penstock.store import StoreReader

        with StoreReader(self.directory) as reader:
            trials = reader.trials()[-_LATEST_TRIALS:]
        rows = [
            (trial.executors, _plan_text(trial.plan), count(trial.rows_per_s), trial.reason or "-") for trial in trials
        ]
        return html_grid("latest trials", ("executors", "plan", "rows/s", "remark"), rows)


def _content(status: RunStatus) -> str:
    if status.run is not None and status.run.kind == "study":
        return f"{status.trials} trials"
    return f"{status.windows} windows, plan {_plan_text(status.plan)}"


def _plan_text(plan: Plan | None) -> str:
    if plan is None:
        return "-"
    replicas = ", ".join(f"{operator} x{count}" for operator, count in plan.replicas.items())
    replicas += "".join(f", {operator} with {threads_text(own)} threads" for operator, own in plan.threads.items())
    return f"{replicas}; {plan.slots_by_group}" if replicas else plan.slots_by_group
