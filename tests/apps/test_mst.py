"""The generators and oracles of the throughput benchmarks, against brute force and closed forms."""

from __future__ import annotations

import itertools
import pickle
import re
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from types import ModuleType

import pytest

import penstock
from penstock.apps.mst import (
    data_clean,
    event_time,
    grep,
    page_view,
    rolling_count,
    rolling_sort,
    sol,
    unique_visitor,
    weblog,
)
from penstock.dataflow import regions

ROWS = 3_000
APPS = [grep, rolling_count, unique_visitor, page_view, data_clean, sol, rolling_sort]
REGIONS = {
    grep: [(("match",), ()), (("count", "out"), ())],
    rolling_count: [(("split",), ()), (("count", "out"), ("word",))],
    unique_visitor: [
        (("parse",), ()),
        (("first_visit",), ("site", "visitor")),
        (("visitors", "out"), ("site",)),
    ],
    page_view: [(("parse",), ()), (("views", "out"), ("site",))],
    data_clean: [(("parse", "answered", "out"), ())],
    sol: [(("hop1", "hop2", "hop3", "out"), ())],
    rolling_sort: [(("sort", "out"), ())],
}


def name_of(app: ModuleType) -> str:
    return app.__name__.rpartition(".")[2]


@pytest.mark.parametrize("app", APPS, ids=name_of)
def test_the_dataflows_have_these_regions_and_their_functions_travel(app: ModuleType) -> None:
    flow = app.flow(rows=10)
    flow.check()
    app.flow().check()
    assert flow.name == name_of(app)
    assert [(region.operators, region.keys) for region in regions(flow)][1:] == REGIONS[app]
    source = flow.operators[0].source
    assert [pickle.loads(pickle.dumps(source)).fn(n) for n in (0, 9)] == [source.fn(n) for n in (0, 9)]


def test_another_process_with_another_hash_seed_generates_the_same_rows() -> None:
    code = (
        "from penstock.apps.mst import rolling_sort, weblog\n"
        "for n in range(20): print(weblog.generator(n), *rolling_sort.generator(n, 20))"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONHASHSEED": "7", "PYTHONPATH": ":".join(filter(None, sys.path)), "TZ": "Asia/Tokyo"},
        capture_output=True,
        text=True,
        check=True,
    )
    expected = [" ".join(map(str, (weblog.generator(n), *rolling_sort.generator(n, 20)))) for n in range(20)]
    assert printed.stdout.splitlines() == expected


# ---- event time


def test_no_row_is_late_and_the_last_closes_all_windows_but_its_own() -> None:
    times = [event_time.event_time(n, ROWS) for n in range(ROWS)]
    for n in range(1, ROWS):
        assert times[n] > max(times[:n]) - timedelta(seconds=event_time.DELAY_S)
    assert sum(later < before for before, later in itertools.pairwise(times)) > ROWS / 4  # out of order
    longest = max(rolling_count.WINDOW_S, rolling_sort.WINDOW_S)
    assert times[-1] - max(times[:-1]) > timedelta(seconds=longest + event_time.DELAY_S)


# ---- grep


def test_about_three_lines_in_ten_match() -> None:
    matches = grep.oracle(ROWS)
    lines = [grep.generator(n) for n in range(ROWS)]
    assert matches == sum(not {"da", "de", "di", "do", "du"}.isdisjoint(line.split()) for line in lines)
    assert matches / ROWS == pytest.approx(0.3, abs=0.05)
    assert grep.oracle(ROWS, "^") == ROWS


def test_the_check_of_grep_is_on_the_last_count() -> None:
    matches = grep.oracle(500)
    sent = [{"count": 0}, {"count": matches}, {"count": 3}, {"count": matches}]
    assert grep.check(sent, 500) == []
    assert grep.check([*sent, {"count": matches + 1}], 500) == [
        f"matching lines: expected {matches}, got {matches + 1}"
    ]
    assert grep.check([], 500) == [f"matching lines: expected {matches}, got 0"]


# ---- rolling count


def test_each_word_is_counted_in_its_three_windows() -> None:
    rows = 2_400
    windows = rolling_count.oracle(rows)
    assert set(windows.values()) == {1}
    lines = [rolling_count.generator(n, rows) for n in range(rows)]
    assert sum(n for _, _, n in windows) == 3 * sum(len(line.split()) for _, line in lines[:-1])
    for end_s in (60, 180, 240, 300):  # seconds of the day; windows that begin before the stream also exist
        end = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=end_s)
        inside = [line for at, line in lines if end - timedelta(minutes=3) <= at < end]
        expected = Counter(word for line in inside for word in line.split())
        end_ms = 1767225600_000 + end_s * 1000
        assert {word: n for word, at_ms, n in windows if at_ms == end_ms} == expected


# ---- rolling sort


def test_the_ranks_of_a_minute_order_all_its_values() -> None:
    expected = rolling_sort.oracle(ROWS)
    assert set(expected.values()) == {1}
    records = [rolling_sort.generator(n, ROWS) for n in range(ROWS)]
    assert {(n, value) for _, _, n, value in expected} == {record[1:] for record in records[:-1]}
    by_end: dict[int, list[tuple[int, int, str]]] = {}
    for end_ms, *ranked in sorted(expected):
        by_end.setdefault(end_ms, []).append(tuple(ranked))
    assert len(by_end) == 6
    for end_ms, ranked in by_end.items():
        assert [rank for rank, _, _ in ranked] == list(range(len(ranked)))
        assert all(before[2] < after[2] for before, after in itertools.pairwise(ranked))
        assert all(0 < end_ms / 1000 - records[n][0].timestamp() <= 60 for _, n, _ in ranked)


def test_equal_values_are_ordered_by_row_number() -> None:
    at = datetime(1970, 1, 1, tzinfo=UTC)
    records = [(at, 2, "a"), (at, 1, "a"), (at + timedelta(minutes=9), 3, "z")]
    assert sorted(rolling_sort.ranked(records)) == [(60_000, 0, 1, "a"), (60_000, 1, 2, "a")]


# ---- web logs


def test_sites_follow_zipf_two_thirds_succeed_and_one_line_in_64_is_broken() -> None:
    lines = [weblog.generator(n) for n in range(16_000)]
    form = re.compile(r'(site\d\d)\.example 198\.18\.\d+\.\d+ - - \[.{26}\] "GET /page/\d+ HTTP/1\.1" (\d+) \d+')
    whole = [match for line in lines if (match := form.fullmatch(line))]
    assert 1 - len(whole) / len(lines) == pytest.approx(1 / 64, rel=0.2)
    assert sum(match[2] == "200" for match in whole) / len(whole) == pytest.approx(11 / 16, abs=0.02)
    sites = Counter(match[1] for match in whole)
    assert len(sites) == weblog.SITES
    harmonic = sum(1 / rank for rank in range(1, weblog.SITES + 1))
    for rank, (_, n) in enumerate(sites.most_common(5), start=1):
        assert n == pytest.approx(len(whole) / rank / harmonic, rel=0.15)


@pytest.mark.parametrize(
    "after",
    ["", ' "http://www.example.com/start.html" "Mozilla/4.08 [en] (Win98; I ;Nav)"'],
    ids=["common", "combined"],
)
def test_lines_of_real_servers_are_read(after: str) -> None:
    # The example of Apache's manual after the name of a site, and other lines that servers write.
    line = 'a.example 127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326'
    read = re.compile(weblog._LINE)
    whole = read.match(line + after)
    assert whole is not None
    assert whole.groups() == ("a.example", "127.0.0.1", "10/Oct/2000:13:55:36 -0700", "/apache_pb.gif", "200", "2326")
    head = read.match(line.replace("GET", "HEAD").replace("2326", "-") + after)
    assert head is not None and head[6] == "-"
    old = read.match(line.replace(" HTTP/1.0", "") + after)
    assert old is not None and old[4] == "/apache_pb.gif"
    assert not any(read.match(line[:length]) for length in range(line.index("200") + 3))


def test_the_oracles_of_web_logs_are_what_a_search_of_the_lines_finds() -> None:
    whole = [line.split() for n in range(ROWS) if (line := weblog.generator(n)).count('"') == 2]
    site = "site03.example"
    views = [words for words in whole if words[0] == site]
    assert page_view.oracle(ROWS)[site] == len(views)
    assert unique_visitor.oracle(ROWS)[site] == len({words[1] for words in views}) < len(views)
    assert page_view.oracle(ROWS).total() == len(whole)
    cleaned = data_clean.oracle(ROWS)
    assert cleaned.total() == sum(words[9] == "200" for words in whole)
    first = next(words for words in whole if words[9] == "200")
    assert (first[0], first[1], 1767225600_000, first[7], 200, int(first[10])) in cleaned


# ---- SOL


def test_as_many_hops_as_asked_for() -> None:
    flow = sol.flow(rows=5, stages=5)
    assert [operator.name for operator in flow.operators][1:-1] == ["hop1", "hop2", "hop3", "hop4", "hop5"]
    with pytest.raises(penstock.DataflowError, match="sol is given stages=0; give 1 or more"):
        sol.flow(stages=0)


def test_the_check_of_sol_sees_loss_repetition_and_change() -> None:
    whole = [{"n": n, "value": sol.generator(n)[1]} for n in range(3)]
    assert sol.check(whole, 3) == []
    assert sol.check(whole[1:], 3) == [f"(0, '{whole[0]['value']}'): expected 1, got 0"]
    assert sol.check([*whole, whole[0]], 3) == [f"(0, '{whole[0]['value']}'): expected 1, got 2"]
    assert len(sol.check([*whole[1:], {"n": 0, "value": "x"}], 3)) == 2
