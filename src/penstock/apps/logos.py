"""Logos: find known logos in the frames of a video.

Fu et al., "DRS", ToN 25(6), 2017, section V-A. `extract` computes the features of each frame. `match` compares each
feature with those of the logos. `aggregate` reports a logo with enough matches in a frame. The cost of a frame depends
on its content: a busy frame has several hundred features, an empty one almost none.

Features are OpenCV's ORB instead of the SIFT of the paper. ORB takes milliseconds per frame instead of tens of them.
Its descriptors have 32 bytes and are compared by counting bits, which gives the same result on every machine.

Frames are generated: shapes, noise and up to two logos. Event time follows the frame number. The last frames of a
finite stream are far in the future: they close all earlier frames and stay open themselves.
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
FRAMES_PER_S = 25.0  # of event time; also the arrival rate if neither a rate nor a number of rows is given
MAX_FEATURES = 300
MAX_DISTANCE_BITS = 20  # by which two descriptors of 256 bits may differ
MIN_MATCHES = 3
FLUSH_ROWS = 2
DELAY_S = 1
FRAMES = "frame bigint, ts timestamp, pixels binary"
FEATURES = "frame bigint, ts timestamp, descriptor binary"
MATCHES = "frame bigint, ts timestamp, logo string"
_SEED = 0x6C6F676F
_START = datetime(2026, 1, 1, 20, tzinfo=UTC)
_FLUSH_AHEAD = timedelta(days=1)


def opencv() -> ModuleType:
    """Return the module cv2, limited to one thread, because a replica has one slot."""
    try:
        import cv2
    except ImportError:
        raise penstock.PenstockError(
            "The app 'logos' needs OpenCV, which is not installed; install it with: pip install 'penstock[apps]'"
        ) from None
    cv2.setNumThreads(1)
    return cv2


@functools.cache
def logo(name: str) -> np.ndarray:
    """Return the picture of a logo: light and dark blocks with some lines across."""
    cv2 = opencv()
    chance = np.random.default_rng([_SEED, LOGOS.index(name)])
    blocks = np.where(chance.random((6, 6)) < 0.5, 28, 228).astype(np.uint8)
    drawn = np.kron(blocks, np.ones((LOGO_SIDE // 6, LOGO_SIDE // 6), np.uint8))
    for x, y, to_x, to_y, shade in chance.integers(4, LOGO_SIDE - 4, (4, 5)).tolist():
        cv2.line(drawn, (x, y), (to_x, to_y), 5 * shade, 2)
    return drawn


def shown(n: int) -> tuple[str, ...]:
    """Return the logos on frame n: none, one or two."""
    bits = random_bits(n, _SEED)
    first, step, count = bits & 3, 1 + (bits >> 2) % 3, (0, 1, 1, 2)[bits >> 8 & 3]
    return tuple(sorted({LOGOS[(first + step * i) % 4] for i in range(count)}))


def picture(n: int, logos: tuple[str, ...] | None = None) -> np.ndarray:
    """Return frame n in shades of grey."""
    cv2 = opencv()
    chance = np.random.default_rng([_SEED, 1_000 + n])
    drawn = np.full((HEIGHT, WIDTH), chance.integers(60, 180), np.uint8)
    for x, y, radius, shade in chance.integers(0, 256, (chance.integers(0, 25), 4)).tolist():
        cv2.circle(drawn, (x % WIDTH, y % HEIGHT), 4 + radius % 20, shade, -1)
    names = shown(n) if logos is None else logos
    for position, name in enumerate(names):  # side by side, so that neither hides the other
        left = chance.integers(0, WIDTH // 2 - LOGO_SIDE) + position * WIDTH // 2
        top = chance.integers(0, HEIGHT - LOGO_SIDE)
        drawn[top : top + LOGO_SIDE, left : left + LOGO_SIDE] = logo(name)
    noise = chance.integers(-6, 7, drawn.shape)
    noisy: np.ndarray = np.clip(drawn + noise, 0, 255).astype(np.uint8)
    return noisy


def generator(n: int, rows: int | None = None) -> tuple[int, datetime, bytes]:
    """Return frame n: number, time and pixels. The last of `rows` frames flush the earlier ones."""
    at = _START + timedelta(seconds=n / FRAMES_PER_S)
    if rows is not None and n >= rows - FLUSH_ROWS:
        return n, at + _FLUSH_AHEAD, picture(n, LOGOS[:2]).tobytes()
    return n, at, picture(n).tobytes()


@functools.cache
def _finder() -> Any:
    return opencv().ORB_create(nfeatures=MAX_FEATURES, fastThreshold=15, edgeThreshold=12, patchSize=25)


def descriptors(pixels: np.ndarray) -> np.ndarray:
    """Return the descriptors of the features of a picture, 32 bytes each."""
    features = _finder().detectAndCompute(np.ascontiguousarray(pixels), None)[1]
    return np.zeros((0, 32), np.uint8) if features is None else features


@functools.cache
def known() -> tuple[np.ndarray, np.ndarray]:
    """Return the descriptors of all logos, and the index of the logo of each."""
    cv2 = opencv()
    by_logo = [
        descriptors(cv2.copyMakeBorder(logo(name), 24, 24, 24, 24, cv2.BORDER_CONSTANT, value=128)) for name in LOGOS
    ]
    return np.concatenate(by_logo), np.repeat(np.arange(len(LOGOS)), [len(part) for part in by_logo])


@functools.cache
def _matcher() -> Any:
    matcher = opencv().BFMatcher(opencv().NORM_HAMMING)
    matcher.add([known()[0]])
    return matcher


def extract(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield one row for each feature of a frame."""
    pixels = np.frombuffer(row["pixels"], np.uint8).reshape(HEIGHT, WIDTH)
    for descriptor in descriptors(pixels):
        yield {"frame": row["frame"], "ts": row["ts"], "descriptor": descriptor.tobytes()}


def match(row: dict[str, Any]) -> dict[str, Any] | None:
    """Return the logo with the nearest feature, or None if it is too far away."""
    (nearest,) = _matcher().match(np.frombuffer(row["descriptor"], np.uint8).reshape(1, 32))
    if nearest.distance > MAX_DISTANCE_BITS:
        return None
    return {"frame": row["frame"], "ts": row["ts"], "logo": LOGOS[known()[1][nearest.trainIdx]]}


def aggregate(matches: DataFrame, enough: int = MIN_MATCHES) -> DataFrame:
    counted = matches.groupBy("frame", "ts", "logo").agg(F.count("*").alias("matches"))
    return counted.where(F.col("matches") >= enough).select("frame", "logo", "matches")


def flow(
    output: Sink | None = None,
    *,
    rows: int | None = None,
    rows_per_s: float | None = None,
    enough: int = MIN_MATCHES,
) -> penstock.Dataflow:
    """Return the dataflow on generated frames."""
    opencv()  # fails early if it is not installed
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


def oracle(rows: int, enough: int = MIN_MATCHES) -> Counter[Seen]:
    """Return the logos in `rows` frames, without those of the flush, by comparing all features with all logos."""
    expected: Counter[Seen] = Counter()
    trained, logo_index = known()
    bits = np.unpackbits(trained, axis=1).astype(np.int16)
    for n in range(rows - FLUSH_ROWS):
        counts: Counter[str] = Counter()
        for feature in np.unpackbits(descriptors(picture(n)), axis=1).astype(np.int16):
            distances = np.abs(bits - feature).sum(axis=1)
            if distances.min() <= MAX_DISTANCE_BITS:
                counts[LOGOS[logo_index[int(distances.argmin())]]] += 1
        expected.update({(n, name, matches): 1 for name, matches in counts.items() if matches >= enough})
    return expected


def actual(output: Iterable[Mapping[str, Any]]) -> Counter[Seen]:
    return Counter((row["frame"], row["logo"], row["matches"]) for row in output)


def check(output: Iterable[Mapping[str, Any]], rows: int, enough: int = MIN_MATCHES) -> list[str]:
    """Return the differences between the output and the oracle."""
    return differences(oracle(rows, enough), actual(output))
