"""The five tasks, their HTTP service and their files, without Spark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import psutil
import pytest
from pyspark import cloudpickle

import penstock
from penstock.apps.model_driven import service as services
from penstock.apps.model_driven import tasks
from penstock.apps.model_driven.file_batches import FileBatches, written_strings
from penstock.apps.model_driven.service import ClientFactory, RunningService, ServiceClient
from penstock.apps.model_driven.service_process import Service, ServiceLimits
from penstock.apps.model_driven.task_graph import Vertex, expected_results
from penstock.apps.model_driven.tasks import Task, TaskOptions

QUICK = ServiceLimits(latency_ms=0.0, blob_bytes=1_000, record_columns=3)


@pytest.fixture
def started() -> Iterator[Callable[[ServiceLimits], RunningService]]:
    running: list[RunningService] = []

    def start(limits: ServiceLimits) -> RunningService:
        running.append(RunningService(limits))
        return running[-1]

    yield start
    for service in running:
        service.close()


def wait_for(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < give_up, "the condition was not met"
        time.sleep(0.01)


def test_pi_is_that_of_the_first_fifteen_factors_of_viete() -> None:
    # 2 / (sqrt(2)/2 * sqrt(2 + sqrt(2))/2): the first two factors, computed by hand
    assert tasks.viete(2) == pytest.approx(3.0614674589, abs=1e-9)
    assert all(tasks.viete(n) == pytest.approx(tasks.expected_pi(n), rel=1e-12) for n in range(1, 16))
    assert abs(tasks.viete() - 3.14159265359) < 2e-9


@pytest.mark.parametrize("documents", [1, 3])
def test_the_parsed_sum_is_that_of_the_numbers_written(documents: int) -> None:
    assert all(tasks.parsed(n, documents) == tasks.expected_sum(n, documents) for n in range(2 * tasks.DOCUMENTS))


def test_every_task_gives_the_expected_result(started: Callable[[ServiceLimits], RunningService]) -> None:
    options = TaskOptions(latency_ms=0.0, blob_bytes=1_000, record_columns=3, pi_repeats=2, xml_documents=2)
    client = ServiceClient(started(options.limits).port)
    batches = FileBatches(None, 10)
    arguments = {Task.WRITE: (batches,), Task.BLOB: (client,), Task.TABLE: (client,)}
    for task, function in tasks._functions(options).items():
        for n in range(20):
            row = {"id": n, "message": "m", "digest": 7}
            result = function(row, *arguments.get(task, ()))
            assert result == row | {"digest": tasks.digested(7, tasks.expected(task, n, options))}
    batches.close()
    client.close()


def test_strings_are_written_in_batches_and_the_rest_at_the_end(tmp_path: Path) -> None:
    batches = FileBatches(str(tmp_path), 10)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: batches.add(f"{n} x"), range(95)))
    assert sorted(len(file.read_text().splitlines()) for file in tmp_path.iterdir()) == [10] * 9
    batches.close()
    assert written_strings(tmp_path) == {f"{n} x" for n in range(95)}


def test_a_repeated_batch_writes_the_same_file(tmp_path: Path) -> None:
    for _ in range(2):
        batches = FileBatches(str(tmp_path), 10)
        for n in range(20):
            batches.add(f"{n} x")
        batches.close()
    assert len(list(tmp_path.iterdir())) == 2
    batches = FileBatches(str(tmp_path), 7)  # the repetition has other batches
    for n in range(20):
        batches.add(f"{n} x")
    batches.close()
    assert written_strings(tmp_path) == {f"{n} x" for n in range(20)}


def test_a_temporary_folder_keeps_the_latest_files_and_disappears() -> None:
    batches = FileBatches(None, 1)
    for n in range(30):
        batches.add(str(n))
    assert {file.read_text() for file in batches.folder.iterdir()} == {f"{n}\n" for n in range(20, 30)}
    batches.close()
    assert not batches.folder.exists()


def test_the_service_waits_for_its_latency_and_for_its_bandwidth() -> None:
    plain = Service(ServiceLimits(latency_ms=30.0))
    assert [plain.delay_s(10**9, 5.0) for _ in range(2)] == [0.03, 0.03]
    narrow = Service(ServiceLimits(latency_ms=30.0, bandwidth_bytes_per_s=1_000.0))
    # Three responses of 500 bytes at once leave after 0.5, 1.0 and 1.5 s, and one after a pause at once.
    assert [narrow.delay_s(500, 5.0) for _ in range(3)] == pytest.approx([0.53, 1.03, 1.53])
    assert narrow.delay_s(500, 60.0) == pytest.approx(0.53)


def test_the_service_admits_its_rate() -> None:
    limited = Service(ServiceLimits(requests_per_s=20.0))
    admitted = [
        sum(limited.admits(100.0 + tick / 100) for tick in range(second * 100, (second + 1) * 100))
        for second in range(5)
    ]
    assert admitted[1:] == [20] * 4 and 20 <= admitted[0] <= 41
    assert all(Service(QUICK).admits(0.0) for _ in range(1_000))


def test_refused_requests_and_unknown_paths_are_connection_errors(
    started: Callable[[ServiceLimits], RunningService],
) -> None:
    client = ServiceClient(started(replace(QUICK, requests_per_s=0.001)).port)
    outcomes: Counter[str] = Counter()
    for _ in range(5):
        try:
            client.get("/blob/1")
            outcomes["ok"] += 1
        except ConnectionError as error:
            outcomes[str(error)] += 1
    assert outcomes == {"ok": 1, "GET /blob/1: 503 Service Unavailable": 4}
    client.close()
    other = ServiceClient(started(QUICK).port)
    for path in ("/blob", "/record/x", "/"):
        with pytest.raises(ConnectionError, match="404 Not Found"):
            other.get(path)
    other.close()


def test_calls_in_parallel_reuse_connections_and_close_ends_them(
    started: Callable[[ServiceLimits], RunningService],
) -> None:
    service = started(replace(QUICK, latency_ms=20.0))
    server = psutil.Process(service.pid)

    def established() -> int:
        return sum(connection.status == psutil.CONN_ESTABLISHED for connection in server.net_connections())

    client = ServiceClient(service.port)
    for _ in range(3):  # threads of another task
        with ThreadPoolExecutor(8) as pool:
            assert [len(content) for content in pool.map(lambda n: client.get(f"/blob/{n}"), range(40))] == [1_000] * 40
    assert 1 <= established() <= 8
    client.close()
    wait_for(lambda: established() == 0)
    assert all(connection.laddr.ip == "127.0.0.1" for connection in server.net_connections())


def test_a_drawn_dataflow_starts_no_service_and_its_workers_share_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "_services", {})
    flow = import_module("penstock.apps.model_driven.linear").flow(rows=1, latency_ms=0.0, blob_bytes=1_000)
    flow.check()
    assert services._services == {}
    factories = [flow[name].fn.calls.client for name in ("blob", "table")]
    assert all(isinstance(factory, ClientFactory) for factory in factories)
    sent = [cloudpickle.loads(cloudpickle.dumps(factory)) for factory in factories]
    (service,) = services._services.values()
    try:
        assert {factory.port for factory in sent} == {service.port}
        client = sent[1]()
        assert json.loads(client.get("/record/7"))["id"] == 7
        client.close()
    finally:
        service.close()
    assert not service.is_running


def test_the_service_ends_with_the_process_that_started_it() -> None:
    code = (
        "from penstock.apps.model_driven.service import running_service\n"
        "from penstock.apps.model_driven.service_process import ServiceLimits\n"
        "print(running_service(ServiceLimits()).pid, flush=True)\n"
        "import time; time.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    server = psutil.Process(int(parent.stdout.readline()))
    assert server.is_running()
    os.kill(parent.pid, signal.SIGKILL)
    parent.communicate()
    wait_for(lambda: not server.is_running() or server.status() == psutil.STATUS_ZOMBIE)


def test_a_call_in_progress_survives_the_close_of_its_client(
    started: Callable[[ServiceLimits], RunningService],
) -> None:
    client = ServiceClient(started(replace(QUICK, latency_ms=300.0)).port)
    results: list[int] = []
    thread = threading.Thread(target=lambda: results.append(len(client.get("/blob/1"))))
    thread.start()
    client.close()
    thread.join(60)
    assert results == [1_000]


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(penstock.DataflowError, match="latency is not an option of this dataflow; use xml_documents, "):
        import_module("penstock.apps.model_driven.star").flow(latency=3)


def test_the_oracle_follows_every_path() -> None:
    """Two paths to one vertex give two rows, computed by hand."""
    graph = {"a": Vertex(Task.PARSE), "b": Vertex(Task.WRITE), "c": Vertex(Task.WRITE, ("a", "b"))}
    parse, write = tasks.ITEMS * (tasks.ITEMS + 1) // 2, 100  # of row 1
    base = 1_000_003
    assert {digest for n, digest in expected_results(graph, 2, {}) if n == 1} == {
        parse * base + write,
        write * base + write,
    }


@pytest.mark.parametrize(
    ("name", "rates", "ends"),
    [
        ("linear", {"pi": 1, "parse": 1, "write": 1, "blob": 1, "table": 1}, 1),
        ("diamond", {"pi": 3, "blob": 1, "table": 1}, 3),
        ("star", {"parse": 2, "blob": 1, "write": 2, "table": 2}, 4),
        ("traffic", {"travel_time": 2}, 3),
        ("finance", {"bargain_index": 2}, 4),
        ("grid", {"forecast": 2, "tariff": 2}, 4),
    ],
)
def test_rows_per_message(name: str, rates: dict[str, int], ends: int) -> None:
    """The text of the paper gives the rate of blob, of the hub of star (twice), and of pi in finance (higher)."""
    app = import_module(f"penstock.apps.model_driven.{name}")
    counts = {"messages": 1}
    for vertex, (_, inputs) in app.GRAPH.items():
        counts[vertex] = sum(counts[source] for source in inputs)
    assert {vertex: counts[vertex] for vertex in rates} == rates
    assert app.oracle(5).total() == 5 * ends
    flow = app.flow()
    assert len(flow.operators) - 2 - ("collect" in [operator.name for operator in flow.operators]) == len(app.GRAPH)


def test_traffic_and_grid_have_one_pi_less_and_one_blob_more_than_finance() -> None:
    counts = {
        name: Counter(task for task, _ in import_module(f"penstock.apps.model_driven.{name}").GRAPH.values())
        for name in ("traffic", "finance", "grid")
    }
    for name in ("traffic", "grid"):
        assert counts[name][Task.PI] == counts["finance"][Task.PI] - 1
        assert counts[name][Task.BLOB] == counts["finance"][Task.BLOB] + 1
    assert all(set(tasks_of) == set(Task) for tasks_of in counts.values())
