"""Requests to a run from another process, with real processes that are killed by their id."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from penstock.control.requests import Answer, Rate, RequestError, Requests, Rescale, Stop, ask, wait_until_gone
from penstock.store import RunLock, RunStart, Store

HOLD = """
import pathlib, sys, penstock.store
lock = penstock.store.RunLock(pathlib.Path(sys.argv[1]))
print(flush=True)
sys.stdin.read()
"""


@pytest.fixture
def silent(tmp_path: Path) -> subprocess.Popen[bytes]:
    """A process that owns the directory and never answers."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"\n"
    yield process  # type: ignore[misc]
    process.kill()
    process.communicate()


def serve_one(requests: Requests, answer: Answer, seen: list[object]) -> None:
    while not seen:
        for request_id, request in requests.take():
            seen.append(request)
            requests.answer(request_id, answer)
        time.sleep(0.01)


def test_a_request_is_answered_and_leaves_nothing_behind(tmp_path: Path) -> None:
    requests, seen = Requests(tmp_path), []
    with RunLock(tmp_path):
        thread = threading.Thread(target=serve_one, args=(requests, Answer(ok=True, text="done"), seen))
        thread.start()
        assert ask(tmp_path, Rescale(replicas={"count": 4}), timeout_s=300).text == "done"
        thread.join()
    assert seen == [Rescale(replicas={"count": 4})]
    assert list(requests.folder.iterdir()) == []


def test_a_refusal_is_an_error_with_the_message_of_the_run(tmp_path: Path) -> None:
    requests, seen = Requests(tmp_path), []
    with RunLock(tmp_path):
        thread = threading.Thread(target=serve_one, args=(requests, Answer(ok=False, text="no such source"), seen))
        thread.start()
        with pytest.raises(RequestError, match="no such source"):
            ask(tmp_path, Rate(source="x", rows_per_s=1.0), timeout_s=300)
        thread.join()


def test_requests_are_taken_in_order_and_once(tmp_path: Path) -> None:
    requests, seen = Requests(tmp_path), []
    with RunLock(tmp_path):
        for rate in range(5):
            with pytest.raises(RequestError, match="had not begun and was withdrawn"):
                ask(tmp_path, Rate(source="s", rows_per_s=float(rate)), timeout_s=0)
    assert list(requests.take()) == []  # all were withdrawn
    for number in (2, 1, 3):
        (requests.folder / f"{number}.json").write_text(f'{{"kind": "rescale", "replicas": {{"a": {number}}}}}')
    seen = [request for _, request in requests.take()]
    assert seen == [Rescale(replicas={"a": number}) for number in (1, 2, 3)]
    assert list(requests.take()) == []


def test_no_run_and_no_directory(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"No run is active in .* resume it with 'penstock run FILE --at"):
        ask(tmp_path, Stop())
    with pytest.raises(RequestError, match="does not exist"):
        ask(tmp_path / "nowhere", Stop())


def test_a_run_that_does_not_answer(tmp_path: Path, silent: subprocess.Popen[bytes]) -> None:
    with pytest.raises(
        RequestError, match=rf"Process {silent.pid} did not answer within 0.2 s; the request 'stop' had not begun"
    ):
        ask(tmp_path, Stop(), timeout_s=0.2)


def test_a_run_that_accepts_a_request_and_does_not_answer(tmp_path: Path) -> None:
    requests, timeout_s, message = Requests(tmp_path), 0.2, "had not begun"

    def take_only() -> None:
        while not list(requests.take()):
            time.sleep(0.01)

    with RunLock(tmp_path):
        thread = threading.Thread(target=take_only)
        thread.start()
        while "had not begun" in message:  # the thread was too slow
            timeout_s *= 2
            with pytest.raises(RequestError) as refused:
                ask(tmp_path, Stop(), timeout_s=timeout_s)
            message = str(refused.value)
        thread.join()
    assert "has begun and may still complete" in message


def test_a_run_that_is_killed_during_a_request(tmp_path: Path, silent: subprocess.Popen[bytes]) -> None:
    def kill_when_asked() -> None:
        while not list((tmp_path / "requests").glob("*.json")):
            time.sleep(0.01)
        os.kill(silent.pid, 9)

    threading.Thread(target=kill_when_asked).start()
    with pytest.raises(RequestError, match=rf"Process {silent.pid} ended before it answered the request 'rescale a=2'"):
        ask(tmp_path, Rescale(replicas={"a": 2}), timeout_s=300)
    wait_until_gone(tmp_path, timeout_s=300)


def test_waiting_for_the_end_of_the_process(tmp_path: Path, silent: subprocess.Popen[bytes]) -> None:
    with pytest.raises(RequestError, match=f"'kill {silent.pid}'"):
        wait_until_gone(tmp_path, timeout_s=0.1)
    silent.communicate(b"")
    wait_until_gone(tmp_path, timeout_s=300)


@pytest.mark.parametrize(
    ("file", "kind", "what"),
    [("wc.py", "study", "a study of wc.py"), ("-", "watch", r"a watched program on local\[2\]")],
)
def test_a_run_without_requests_refuses_them_at_once(file: str, kind: str, what: str, tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.begin_run(
            RunStart(dataflow="wc", kind=kind, flow_file=file, pid=os.getpid(), master="local[2]", started_s=0.0)
        )
        with pytest.raises(RequestError, match=rf"{what}, which does not accept requests; .*'kill {os.getpid()}'"):
            ask(tmp_path, Stop(), timeout_s=600.0)
