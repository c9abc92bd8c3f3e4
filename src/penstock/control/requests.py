"""Requests to a running run: one JSON file per request, and one per answer.

A client writes `<run dir>/requests/<id>.json` atomically. The run takes a request by deleting its file. A client that
gives up deletes the file as well; if that succeeds, the run has not begun the request. The answer is
`<id>.answer.json`. No port is opened: permission to write the directory is permission to send requests.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from penstock.control.plan_changes import change_plan, error_record, error_text
from penstock.dataflow.errors import PenstockError
from penstock.engines.ports import Applied, RunnableEngine
from penstock.plan import Plan, Threads, recut, rescaled, validated
from penstock.store import Store
from penstock.store.errors import StoreError
from penstock.store.lock import Owner, owner
from penstock.store.reader import StoreReader

FOLDER = "requests"


class RequestError(PenstockError):
    """No run is active, the run did not answer, or it refused the request."""


class Apply(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="apply"):
    plan: Plan

    def __str__(self) -> str:
        return "apply a plan"


class Rescale(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="rescale"):
    replicas: dict[str, Threads]  # by operator; threads by "<operator>.threads"

    def __str__(self) -> str:
        return " ".join(["rescale", *(f"{name}={_count(count)}" for name, count in self.replicas.items())])


def _count(count: Threads) -> str:
    return str(count) if isinstance(count, int) else ",".join(map(str, count))


class Recut(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="recut"):
    cut: tuple[str, ...] = ()  # operators after which to cut
    fuse: tuple[str, ...] = ()  # operators after which to remove the cut

    def __str__(self) -> str:
        changes = {"cut": self.cut, "fuse": self.fuse}
        return ", ".join(f"{verb} {' '.join(names)}" for verb, names in changes.items() if names)


class Rate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="rate"):
    source: str
    rows_per_s: float

    def __str__(self) -> str:
        return f"rate {self.source}={self.rows_per_s:g}"


class SetPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="set"):
    """Settings of the policy to change. None: the setting stays."""

    latency_s: float | None = None  # T_max of DRS
    release_below_s: float | None = None  # T_min
    max_slots: int | None = None  # K_max
    cooldown_s: float | None = None  # T_ra

    def given(self) -> dict[str, float]:
        """Return the settings to change by name."""
        return {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}

    def __str__(self) -> str:
        return " ".join(["set", *(f"{name}={value:g}" for name, value in self.given().items())])


class Stop(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="stop"):
    def __str__(self) -> str:
        return "stop"


Request = Apply | Rescale | Recut | Rate | SetPolicy | Stop


class Answer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The answer of a run to a request.

    >>> Answer(ok=True, text="count: 2 -> 4 replicas (paused 0.81 s)")
    <Answer: count: 2 -> 4 replicas (paused 0.81 s)>
    """

    ok: bool
    text: str  # the result, or why the request was refused
    applied: Applied | None = None  # details of a successful plan change

    def __repr__(self) -> str:  # an interactive shell shows it
        return f"<Answer: {self.text}>" if self.ok else f"<Answer, refused: {self.text}>"


class Requests:
    """The queue of requests in a run directory. The process of the run takes requests from it and answers them."""

    def __init__(self, run_dir: Path | str) -> None:
        self.folder = Path(run_dir) / FOLDER
        self.folder.mkdir(parents=True, exist_ok=True)

    def clear(self) -> None:
        """Refuse the requests that were sent to an earlier run, such as its 'stop'."""
        for file in self.folder.glob("*.answer.json"):  # their clients gave up
            file.unlink(missing_ok=True)
        for request_id, request in self.take():
            text = f"The request '{request}' was sent before this run began; send it again."
            self.answer(request_id, Answer(ok=False, text=text))

    def take(self) -> Iterator[tuple[str, Request]]:
        """Yield requests with their ids, oldest first; refuse files that are not valid requests."""
        for file in sorted(self.folder.glob("*.json")):
            if file.name.endswith(".answer.json"):
                continue
            try:
                content = file.read_bytes()
                file.unlink()
            except FileNotFoundError:  # the client gave up
                continue
            try:
                yield file.stem, msgspec.json.decode(content, type=Request)
            except msgspec.DecodeError as error:
                self.answer(file.stem, Answer(ok=False, text=f"This is not a valid request: {error}."))

    def answer(self, request_id: str, answer: Answer) -> None:
        _put(self.folder / f"{request_id}.answer.json", answer)


def handle(
    request: Request,
    engine: RunnableEngine,
    store: Store,
    *,
    at_s: float,
    change_settings: Callable[[SetPolicy], str | None] | None = None,
) -> Answer:
    """Execute a request on the run's engine or policy. Errors become the answer and a record in the store.

    `change_settings` changes the settings of the policy and may return a remark; None: the run has no policy.
    """
    try:
        match request:
            case Apply(plan=plan):
                plan = validated(engine.flow, plan)
            case Rescale(replicas=replicas):
                plan = rescaled(engine.flow, engine.plan, replicas)
            case Recut(cut=cut, fuse=fuse):
                plan = recut(engine.flow, engine.plan, cut=cut, fuse=fuse)
            case Rate(source=source, rows_per_s=rows_per_s):
                engine.set_rate(source, rows_per_s)
                return Answer(ok=True, text=f"{source} now appends {rows_per_s:g} rows/s")
            case SetPolicy():
                if change_settings is None:
                    raise RequestError("The run has no policy whose settings could change; resume it with a policy.")
                remark = change_settings(request)
                text = f"{request}; the next decision uses it"
                return Answer(ok=True, text=text if remark is None else f"{text}. {remark}")
            case Stop():
                return Answer(ok=True, text="stopped")
        ok, text, applied = change_plan(engine, store, plan, requester=str(request), at_s=at_s)
        return Answer(ok=ok, text=text, applied=applied)
    except Exception as error:
        store.add_error(error_record(error, where=str(request), at_s=at_s))
        return Answer(ok=False, text=error_text(error))


def ask(run_dir: Path | str, request: Request, *, timeout_s: float = 120.0, window_s: float = 0.05) -> Answer:
    """Send a request and wait for the answer.

    Raises RequestError if no run is active in the directory, if it ends, does not answer in time, or refuses.
    """
    running = _running(Path(run_dir))
    folder = Path(run_dir) / FOLDER
    # The time comes first, so that the order of names is the order of requests.
    request_id = f"{time.time_ns():020d}-{uuid.uuid4().hex[:8]}"
    asked, answered = folder / f"{request_id}.json", folder / f"{request_id}.answer.json"
    folder.mkdir(exist_ok=True)
    _put(asked, request)
    give_up = time.monotonic() + timeout_s
    try:
        while (answer := _get(answered)) is None:
            if not running.alive() and (answer := _get(answered)) is None:
                raise RequestError(
                    f"Process {running.pid} ended before it answered the request '{request}'; {_resume(run_dir)}."
                )
            if answer is not None:
                break
            if time.monotonic() > give_up:
                state = "had not begun and was withdrawn" if _withdraw(asked) else "has begun and may still complete"
                raise RequestError(
                    f"Process {running.pid} did not answer within {timeout_s:g} s; the request '{request}' {state}. "
                    f"See 'penstock status {run_dir}'."
                )
            time.sleep(window_s)
    finally:
        _withdraw(asked)
        answered.unlink(missing_ok=True)
    if not answer.ok:
        raise RequestError(answer.text)
    return answer


def wait_until_gone(run_dir: Path | str, *, timeout_s: float = 60.0) -> None:
    """Wait after a stop until the process has ended and a new run may use the directory."""
    give_up = time.monotonic() + timeout_s
    while (running := owner(Path(run_dir))) is not None:
        if time.monotonic() > give_up:
            raise RequestError(
                f"The run stopped, but its process {running.pid} has not ended within {timeout_s:g} s; end it with "
                f"'kill {running.pid}'."
            )
        time.sleep(0.05)


def _running(run_dir: Path) -> Owner:
    if not run_dir.is_dir():
        raise RequestError(f"Directory '{run_dir}' does not exist; give the directory of 'penstock run --at'.")
    running = owner(run_dir)
    if running is None:
        raise RequestError(f"No run is active in '{run_dir}'; {_resume(run_dir)}.")
    with contextlib.suppress(StoreError), StoreReader(run_dir) as store:
        run = store.last_run()
        if run is not None and not run.takes_requests:
            raise RequestError(
                f"'{run_dir}' contains {run.description}, which does not accept requests; stop it with Ctrl-C in its "
                f"terminal or with 'kill {running.pid}'."
            )
    return running


def _resume(run_dir: Path | str) -> str:
    return f"start or resume it with 'penstock run FILE --at {run_dir}'"


def _withdraw(asked: Path) -> bool:
    """Delete a request; return whether it was still there, and therefore had not begun."""
    try:
        asked.unlink()
    except FileNotFoundError:
        return False
    return True


def _put(file: Path, content: Request | Answer) -> None:
    temporary = file.with_name(f"{file.name}.tmp")
    temporary.write_bytes(msgspec.json.encode(content))
    temporary.replace(file)


def _get(file: Path) -> Answer | None:
    with contextlib.suppress(FileNotFoundError):
        return msgspec.json.decode(file.read_bytes(), type=Answer)
    return None
