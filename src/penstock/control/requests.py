"""How another terminal asks a running run for something: one JSON file a request, one an answer.

`<run dir>/requests/<id>.json` is put there whole (written beside, then renamed). The run takes it by removing it, so a
client that gives up knows by removing it first that it was never begun. The answer is `<id>.answer.json`. Files need no
port, so nothing listens, and whoever may write the directory may ask.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import msgspec

from penstock.dataflow.errors import PenstockError
from penstock.engines.ports import Applied
from penstock.plan.plan import Plan
from penstock.store.errors import StoreError
from penstock.store.lock import Owner, owner
from penstock.store.reader import StoreReader

FOLDER = "requests"


class RequestError(PenstockError):
    """Nobody is there to ask, nobody answered, or the run said no."""


class Apply(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="apply"):
    plan: Plan

    def __str__(self) -> str:
        return "apply a plan"


class Rescale(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="rescale"):
    replicas: dict[str, int]  # by operator, or by region

    def __str__(self) -> str:
        return " ".join(["rescale", *(f"{name}={count}" for name, count in self.replicas.items())])


class Rate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="rate"):
    source: str
    rows_per_s: float

    def __str__(self) -> str:
        return f"rate {self.source}={self.rows_per_s:g}"


class Stop(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="stop"):
    def __str__(self) -> str:
        return "stop"


Request = Apply | Rescale | Rate | Stop


class Answer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    ok: bool
    text: str  # what was done, or why not
    applied: Applied | None = None  # of a plan change that went well


class Requests:
    """The run's side."""

    def __init__(self, run_dir: Path | str) -> None:
        self.folder = Path(run_dir) / FOLDER
        self.folder.mkdir(parents=True, exist_ok=True)

    def clear(self) -> None:
        """Before a run starts: what was asked of an earlier one is not done now, least of all its 'stop'."""
        for file in self.folder.glob("*.answer.json"):  # of askers that gave up
            file.unlink(missing_ok=True)
        for request_id, request in self.take():
            self.answer(request_id, Answer(ok=False, text=f"'{request}' was asked before this run began; ask again"))

    def take(self) -> Iterator[tuple[str, Request]]:
        """Requests with their ids, in the order in which they were asked; what cannot be read is answered here."""
        for file in sorted(self.folder.glob("*.json")):
            if file.name.endswith(".answer.json"):
                continue
            try:
                content = file.read_bytes()
                file.unlink()
            except FileNotFoundError:  # its asker gave up
                continue
            try:
                yield file.stem, msgspec.json.decode(content, type=Request)
            except msgspec.DecodeError as error:
                self.answer(file.stem, Answer(ok=False, text=f"this is no request that a run understands: {error}"))

    def answer(self, request_id: str, answer: Answer) -> None:
        _put(self.folder / f"{request_id}.answer.json", answer)


def ask(run_dir: Path | str, request: Request, *, timeout_s: float = 120.0, every_s: float = 0.05) -> Answer:
    """The client's side: asks and waits. RequestError if no run is alive, if it dies, does not answer or refuses."""
    running = _running(Path(run_dir))
    folder = Path(run_dir) / FOLDER
    # Sorted by name they are in the order of asking.
    request_id = f"{time.time_ns():020d}-{uuid.uuid4().hex[:8]}"
    asked, answered = folder / f"{request_id}.json", folder / f"{request_id}.answer.json"
    folder.mkdir(exist_ok=True)
    _put(asked, request)
    give_up = time.monotonic() + timeout_s
    try:
        while (answer := _get(answered)) is None:
            if not running.alive() and (answer := _get(answered)) is None:
                raise RequestError(f"process {running.pid} ended before it answered '{request}'; {_resume(run_dir)}")
            if answer is not None:
                break
            if time.monotonic() > give_up:
                begun = "it was not begun, and is withdrawn" if _withdraw(asked) else "it was begun and may yet be done"
                raise RequestError(
                    f"process {running.pid} did not answer '{request}' within {timeout_s:g} s: {begun}; look at "
                    f"'penstock status {run_dir}'"
                )
            time.sleep(every_s)
    finally:
        _withdraw(asked)
        answered.unlink(missing_ok=True)
    if not answer.ok:
        raise RequestError(answer.text)
    return answer


def wait_until_gone(run_dir: Path | str, *, timeout_s: float = 60.0) -> None:
    """After a stop: until the process has ended, so that the next `penstock run` finds the directory free."""
    give_up = time.monotonic() + timeout_s
    while (running := owner(Path(run_dir))) is not None:
        if time.monotonic() > give_up:
            raise RequestError(
                f"the run stopped, but its process {running.pid} has not ended within {timeout_s:g} s; end it with "
                f"with 'kill {running.pid}'"
            )
        time.sleep(0.05)


def _running(run_dir: Path) -> Owner:
    if not run_dir.is_dir():
        raise RequestError(f"there is no directory '{run_dir}'; give the one that 'penstock run --at' was given")
    running = owner(run_dir)
    if running is None:
        raise RequestError(f"no run is alive in '{run_dir}'; {_resume(run_dir)}")
    with contextlib.suppress(StoreError), StoreReader(run_dir) as store:
        run = store.last_run()
        if run is not None and not run.takes_requests:
            raise RequestError(
                f"in '{run_dir}' there is {run.description}, which takes no requests; stop it with Ctrl-C in its "
                f"terminal or with 'kill {running.pid}'"
            )
    return running


def _resume(run_dir: Path | str) -> str:
    return f"start or resume it with 'penstock run FILE --at {run_dir}'"


def _withdraw(asked: Path) -> bool:
    """Whether it was still there, hence never begun."""
    try:
        asked.unlink()
    except FileNotFoundError:
        return False
    return True


def _put(file: Path, content: Request | Answer) -> None:
    beside = file.with_name(f"{file.name}.tmp")
    beside.write_bytes(msgspec.json.encode(content))
    beside.replace(file)


def _get(file: Path) -> Answer | None:
    with contextlib.suppress(FileNotFoundError):
        return msgspec.json.decode(file.read_bytes(), type=Answer)
    return None
