"""Logos: which of a set of logos is seen in which frame of a video.

Fu et al., "DRS", ToN 25(6), 2017, section V-A: frames, from which features are extracted, each of which is matched with
the features of the logos; a logo with enough matches in a frame is in it. `extract` and `match` do the work, and how
much that is depends on the frame: a busy one has several hundred features, an empty one hardly any.

Features are OpenCV's ORB, where the paper has SIFT: a frame takes milliseconds and not tens of them, a descriptor 32
bytes, and two of them are compared by counting bits, which gives the same number on every machine.

Frames are drawn, not filmed: shapes and noise, on which up to two logos are put. Event time comes from the frame
number; the last frames of a finite stream lie far in the future and close all frames before them; they stay open
themselves.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

import penstock
from penstock.apps.comparison import differences
from penstock.apps.input_output import default_sink
from penstock.apps.seeded_random import random_bits
from penstock.dataflow.sinks import Sink

WIDTH, HEIGHT = 192, 144
LOGOS = ("anchor", "bridge", "comet", "drum")
LOGO_SIDE = 48
FRAMES_PER_S = 25.0  # where neither a rate nor an end is given; and of event time, whatever the rate of arrival
MOST_FEATURES = 300
NEAR_BITS = 20  # of 256 that two descriptors may differ in
ENOUGH = 3  # matches
FLUSH_ROWS = 2
DELAY_S = 1
FRAMES = "frame bigint, ts timestamp, pixels binary"
FEATURES = "frame bigint, ts timestamp, descriptor binary"
MATCHES = "frame bigint, ts timestamp, logo string"
_SEED = 0x6C6F676F
_START = datetime(2026, 1, 1, 20, tzinfo=UTC)
_FLUSH_AHEAD = timedelta(days=1)


def opencv() -> ModuleType:
    """One thread: a replica has one slot."""
    try:
        import cv2
    except ImportError:
        raise penstock.PenstockError(
            "the app 'logos' looks at pictures with OpenCV, which is not installed; install it with "
            "pip install 'penstock[apps]'"
        ) from None
    cv2.setNumThreads(1)
    return cv2


@functools.cache
def logo(name: str) -> np.ndarray:
    """Blocks of light and dark, and some lines across."""
    cv2 = opencv()
    chance = np.random.default_rng([_SEED, LOGOS.index(name)])
    blocks = np.where(chance.random((6, 6)) < 0.5, 28, 228).astype(np.uint8)
    drawn = np.kron(blocks, np.ones((LOGO_SIDE // 6, LOGO_SIDE // 6), np.uint8))
    for x, y, to_x, to_y, shade in chance.integers(4, LOGO_SIDE - 4, (4, 5)).tolist():
        cv2.line(drawn, (x, y), (to_x, to_y), 5 * shade, 2)
    return drawn


def shown(n: int) -> tuple[str, ...]:
    """The logos that are put on frame n: none, one or two of them."""
    bits = random_bits(n, _SEED)
    first, step, how_many = bits & 3, 1 + (bits >> 2) % 3, (0, 1, 1, 2)[bits >> 8 & 3]
    return tuple(sorted({LOGOS[(first + step * i) % 4] for i in range(how_many)}))


def picture(n: int, logos: tuple[str, ...] | None = None) -> np.ndarray:
    """Frame n, in shades of grey."""
    cv2 = opencv()
    chance = np.random.default_rng([_SEED, 1_000 + n])
    drawn = np.full((HEIGHT, WIDTH), chance.integers(60, 180), np.uint8)
    for x, y, radius, shade in chance.integers(0, 256, (chance.integers(0, 25), 4)).tolist():
        cv2.circle(drawn, (x % WIDTH, y % HEIGHT), 4 + radius % 20, shade, -1)
    put = shown(n) if logos is None else logos
    for place, name in enumerate(put):  # two side by side, so that neither hides the other
        left = chance.integers(0, WIDTH // 2 - LOGO_SIDE) + place * WIDTH // 2
        top = chance.integers(0, HEIGHT - LOGO_SIDE)
        drawn[top : top + LOGO_SIDE, left : left + LOGO_SIDE] = logo(name)
    noise = chance.integers(-6, 7, drawn.shape)
    noisy: np.ndarray = np.clip(drawn + noise, 0, 255).astype(np.uint8)
    return noisy


def generator(n: int, rows: int | None = None) -> tuple[int, datetime, bytes]:
    """Frame n: its number, its time, its pixels; the last of `rows` are the flush."""
    at = _START + timedelta(seconds=n / FRAMES_PER_S)
    if rows is not None and n >= rows - FLUSH_ROWS:
        return n, at + _FLUSH_AHEAD, picture(n, LOGOS[:2]).tobytes()
    return n, at, picture(n).tobytes()


@functools.cache
def _finder() -> Any:
    return opencv().ORB_create(nfeatures=MOST_FEATURES, fastThreshold=15, edgeThreshold=12, patchSize=25)


def descriptors(pixels: np.ndarray) -> np.ndarray:
    """Of the features of a picture: 32 bytes each."""
    found = _finder().detectAndCompute(np.ascontiguousarray(pixels), None)[1]
    return np.zeros((0, 32), np.uint8) if found is None else found


@functools.cache
def known() -> tuple[np.ndarray, np.ndarray]:
    """The descriptors of all logos, and which logo each is of."""
    cv2 = opencv()
    found = [
        descriptors(cv2.copyMakeBorder(logo(name), 24, 24, 24, 24, cv2.BORDER_CONSTANT, value=128)) for name in LOGOS
    ]
    return np.concatenate(found), np.repeat(np.arange(len(LOGOS)), [len(one) for one in found])


@functools.cache
def _matcher() -> Any:
    matcher = opencv().BFMatcher(opencv().NORM_HAMMING)
    matcher.add([known()[0]])
    return matcher


def extract(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A row for each feature of a frame."""
    pixels = np.frombuffer(row["pixels"], np.uint8).reshape(HEIGHT, WIDTH)
    for one in descriptors(pixels):
        yield {"frame": row["frame"], "ts": row["ts"], "descriptor": one.tobytes()}


def match(row: dict[str, Any]) -> dict[str, Any] | None:
    """The logo that has the nearest of all features, if that is near enough."""
    (nearest,) = _matcher().match(np.frombuffer(row["descriptor"], np.uint8).reshape(1, 32))
    if nearest.distance > NEAR_BITS:
        return None
    return {"frame": row["frame"], "ts": row["ts"], "logo": LOGOS[known()[1][nearest.trainIdx]]}


def aggregate(matches: DataFrame, enough: int = ENOUGH) -> DataFrame:
    counted = matches.groupBy("frame", "ts", "logo").agg(F.count("*").alias("matches"))
    return counted.where(F.col("matches") >= enough).select("frame", "logo", "matches")


def flow(
    output: Sink | None = None,
    *,
    rows: int | None = None,
    rows_per_s: float | None = None,
    enough: int = ENOUGH,
) -> penstock.Dataflow:
    """The dataflow on generated frames."""
    opencv()  # says at once what is missing
    flow = penstock.Dataflow("logos")
    frames = functools.partial(generator, rows=rows)
    rate = FRAMES_PER_S if rows is None and rows_per_s is None else rows_per_s
    (
        flow.source("frames", penstock.generate(frames, schema=FRAMES, rows=rows, rows_per_s=rate))
        .rows("extract", extract, schema=FEATURES)
        .rows("match", match, schema=MATCHES)
        .watermark("ts", f"{DELAY_S} seconds")
        .keyed(
            "aggregate",
            functools.partial(aggregate, enough=enough),
            keys=["frame", "logo"],
            columns=["frame", "logo", "matches"],
        )
        .sink("out", default_sink(output, rows))
    )
    return flow


Seen = tuple[int, str, int]  # frame, logo, matches


def oracle(rows: int, enough: int = ENOUGH) -> Counter[Seen]:
    """What must be seen in `rows` frames, but for the flush: frame by frame, each feature against all of the logos'."""
    found: Counter[Seen] = Counter()
    trained, of = known()
    bits = np.unpackbits(trained, axis=1).astype(np.int16)
    for n in range(rows - FLUSH_ROWS):
        counts: Counter[str] = Counter()
        for one in np.unpackbits(descriptors(picture(n)), axis=1).astype(np.int16):
            apart = np.abs(bits - one).sum(axis=1)
            if apart.min() <= NEAR_BITS:
                counts[LOGOS[of[int(apart.argmin())]]] += 1
        found.update({(n, name, matches): 1 for name, matches in counts.items() if matches >= enough})
    return found


def actual(output: Iterable[Mapping[str, Any]]) -> Counter[Seen]:
    return Counter((row["frame"], row["logo"], row["matches"]) for row in output)


def check(output: Iterable[Mapping[str, Any]], rows: int, enough: int = ENOUGH) -> list[str]:
    """How the output differs from the oracle's: logos that are missing, wrong, or there more than once."""
    return differences(oracle(rows, enough), actual(output))
