"""The published performance models and the micro-DAGs of Shukla and Simmhan (JPDC 2018), and random ones like them."""

from __future__ import annotations

from collections import Counter

from hypothesis import strategies as st

from penstock.models.curve import Curve, CurvePoint, curve_from_points
from penstock.models.flow import Flow, FlowStream
from penstock.planning.placement import Placement

PUBLISHED = {  # threads: (peak rows/s, CPU%, memory%) on one slot
    "parse": {1: (310, 84.69, 35.63)},
    "pi": {1: (105, 92.35, 2.07), 2: (110, 94.90, 3.53)},
    "write": {1: (60000, 58.27, 11.95), 2: (50000, 51.84, 2.76)},
    "blob": {
        1: (2, 6.73, 23.92),
        2: (3, 6.63, 23.98),
        20: (10, 14.69, 26.30),
        30: (20, 54.18, 28.74),
        50: (30, 76.73, 31.38),
    },
    "table": {
        1: (3, 1.02, 1.15),
        2: (5, 2.04, 1.15),
        10: (10, 11.22, 3.45),
        40: (20, 26.53, 9.20),
        50: (30, 38.78, 12.64),
        60: (40, 54.08, 16.09),
    },
}


def curve(points: dict[int, tuple[float, float, float]]) -> Curve:
    return curve_from_points({n: CurvePoint(rows_per_s=w, cpu=c, memory=m) for n, (w, c, m) in points.items()})


CURVES = {name: curve(points) for name, points in PUBLISHED.items()}


def flow(*streams: tuple[str | None, str]) -> Flow:
    names = dict.fromkeys(name for ends in streams for name in ends if name is not None)
    return Flow(operators=tuple(names), streams=tuple(FlowStream(source=s, target=t) for s, t in streams))


LINEAR = flow((None, "parse"), ("parse", "pi"), ("pi", "write"), ("write", "blob"), ("blob", "table"))
# Only a figure of the paper shows the positions of the tasks. According to its text, the blob task gets the rate of the
# dataflow in all three, the table task too in the diamond, and the hub of the star gets twice the rate.
DIAMOND = flow(
    (None, "parse"),
    ("parse", "write"),
    ("parse", "blob"),
    ("parse", "table"),
    ("write", "pi"),
    ("blob", "pi"),
    ("table", "pi"),
)
STAR = flow((None, "blob"), (None, "pi"), ("blob", "parse"), ("pi", "parse"), ("parse", "write"), ("parse", "table"))


@st.composite
def curves(draw: st.DrawFn) -> Curve:
    percent = st.floats(0.0, 100.0) | st.sampled_from([0.0, 25.0, 50.0, 100.0])
    counts = draw(st.sets(st.integers(2, 12), max_size=3))
    return curve({n: (draw(st.floats(1.0, 50.0)), draw(percent), draw(percent)) for n in [1, *sorted(counts)]})


@st.composite
def instances(draw: st.DrawFn) -> tuple[Flow, float, dict[str, Curve]]:
    """A random dataflow of up to four operators, a rate, and curves."""
    names = "abcd"[: draw(st.integers(1, 4))]
    streams = []
    for at, name in enumerate(names):
        sources: list[str | None] = [None, *names[:at]]
        for source in draw(st.sets(st.sampled_from(sources), min_size=1, max_size=2)):
            streams.append(
                FlowStream(source=source, target=name, selectivity=draw(st.just(0.0) | st.floats(0.01, 2.0)))
            )
    rate = draw(st.floats(0.5, 60.0))
    return Flow(operators=tuple(names), streams=tuple(streams)), rate, {name: draw(curves()) for name in names}


def used_slots(placement: Placement) -> set[int]:
    """Return the slots that run at least one thread."""
    return {slot for slots in placement.slot_of.values() for slot in slots}


def mixed_slots(placement: Placement) -> set[int]:
    """Return the slots that run threads of more than one operator."""
    operators = Counter(slot for slots in placement.slot_of.values() for slot in set(slots))
    return {slot for slot, count in operators.items() if count > 1}
