"""Dataflows of one region (figures 4, 10, 13 and 16) and of several regions (figure 7).

The first operator of a region is keyed and the others are stateless: Penstock requires a cut between two operators with
state in output mode update, so a region of keyed operators could not begin with one pipeline as in the paper. Each
function takes the work in multiplications per row. `rows` ends the stream; `rows_per_s` paces it.
"""

from __future__ import annotations

from collections.abc import Sequence

import penstock
from penstock.apps.joker.multiplication import finish, keyed_multiply, multiply, source
from penstock.dataflow import Dataflow
from penstock.dataflow.sinks import Sink
from penstock.dataflow.stream import Stream


def region(name: str, work: Sequence[int], output: Sink | None, rows: int | None, rows_per_s: float | None) -> Dataflow:
    """Return a dataflow with one keyed region of several operators."""
    first, *others = work
    stream = keyed_multiply(source(penstock.Dataflow(name), rows, rows_per_s), "m1", first)
    for number, times in enumerate(others, start=2):
        stream = multiply(stream, f"m{number}", times)
    return finish(stream, output, rows)


def one_operator(
    output: Sink | None = None, *, work: int = 256, rows: int | None = None, rows_per_s: float | None = None
) -> Dataflow:
    """Figure 11: a region of one operator under a load that doubles."""
    return region("one_operator", [work], output, rows, rows_per_s)


def two_operators(
    output: Sink | None = None,
    *,
    work: tuple[int, int] = (450, 400),
    rows: int | None = None,
    rows_per_s: float | None = None,
) -> Dataflow:
    """Figure 13: a region of two operators with balanced or unbalanced costs."""
    return region("two_operators", work, output, rows, rows_per_s)


def four_operators(
    output: Sink | None = None, *, work: int = 256, rows: int | None = None, rows_per_s: float | None = None
) -> Dataflow:
    """Figure 4: a region of four equal operators. The paper's work per row is the sum of all four."""
    return region("four_operators", [work] * 4, output, rows, rows_per_s)


def five_operators(output: Sink | None = None, *, rows: int | None = None, rows_per_s: float | None = None) -> Dataflow:
    """Figure 16: a region of five operators with 1024, 32, 32, 1024 and 1024 multiplications."""
    return region("five_operators", [1024, 32, 32, 1024, 1024], output, rows, rows_per_s)


def selectivities(output: Sink | None = None, *, rows: int | None = None, rows_per_s: float | None = None) -> Dataflow:
    """Figure 10: four operators with one that duplicates rows and two that drop rows between them."""
    return finish(selective_region(source(penstock.Dataflow("selectivities"), rows, rows_per_s)), output, rows)


def selective_region(stream: Stream) -> Stream:
    """Add the operators of figure 10."""
    stream = keyed_multiply(stream, "m1", 1024)
    stream = multiply(stream, "s1", 0, 4.0)
    stream = multiply(stream, "m2", 256)
    stream = multiply(stream, "s2", 0, 0.25)
    stream = multiply(stream, "m3", 1024)
    stream = multiply(stream, "s3", 0, 0.5)
    return multiply(stream, "m4", 2048)


def tree(
    output: Sink | None = None, *, work: int = 256, rows: int | None = None, rows_per_s: float | None = None
) -> Dataflow:
    """Figure 7a: a region whose rows go to two other regions."""
    root = keyed_multiply(source(penstock.Dataflow("tree"), rows, rows_per_s), "root", work)
    for side in ("left", "right"):
        finish(keyed_multiply(root, side, work, key="other"), output, rows, f"{side}_out")
    return root.flow


def reverse_tree(
    output: Sink | None = None, *, work: int = 256, rows: int | None = None, rows_per_s: float | None = None
) -> Dataflow:
    """Figure 7b: two regions, each with its source, whose rows go to a third one."""
    flow = penstock.Dataflow("reverse_tree")
    sides = [
        keyed_multiply(source(flow, rows, rows_per_s, f"{side}_numbers"), side, work) for side in ("left", "right")
    ]
    return finish(keyed_multiply(sides, "root", work, key="other"), output, rows)


def chain(
    output: Sink | None = None,
    *,
    operators: int = 2,
    work: int = 256,
    rows: int | None = None,
    rows_per_s: float | None = None,
) -> Dataflow:
    """Return the dataflow of figures 7c (`operators=2`) and 7d (`operators=4`): two regions in sequence."""
    flow = penstock.Dataflow(f"chain_of_{operators}")
    stream = source(flow, rows, rows_per_s)
    for number, key in enumerate(("key", "other"), start=1):
        stream = keyed_multiply(stream, f"m{number}", work, key=key)
        for extra in range(operators // 2 - 1):
            stream = multiply(stream, f"m{number}{'abc'[extra]}", work)
    return finish(stream, output, rows)


def costly_and_cheap(
    output: Sink | None = None, *, work: int = 32, rows: int | None = None, rows_per_s: float | None = None
) -> Dataflow:
    """Figure 9: two regions in a row; the first has 8 times the work of the second."""
    stream = keyed_multiply(source(penstock.Dataflow("costly_and_cheap"), rows, rows_per_s), "costly", work)
    return finish(keyed_multiply(stream, "cheap", max(1, work // 8), key="other"), output, rows)
