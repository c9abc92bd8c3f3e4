"""Logos: find known logos in the frames of a video.

Fu et al., "DRS", ToN 25(6), 2017, section V-A. `extract` computes the features of each frame. `match` compares each
feature with those of the logos. `aggregate` reports a logo with enough matches in a frame. The cost of a frame depends
on its content: a busy frame has several hundred features, an empty one almost none.

Features are OpenCV's ORB, or its SIFT as in the paper. ORB takes milliseconds per frame instead of tens of them. Its
descriptors have 32 bytes and are compared by counting bits, which gives the same result on every machine. SIFT
descriptors have 128 numbers from 0 to 255, which are compared by their L2 distance.

Frames are generated: shapes, noise and up to two of 16 logos. The number of shapes varies by frame, and with it
that of the features. `frame_rates` has the rates of the paper, uniform in 1 to 25 frames/s. Event time follows the
frame number. The last frames of a finite stream are far in the future: they close all earlier frames and stay open
themselves.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any, Literal

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

import penstock
from penstock.apps.comparison import differences
from penstock.apps.input_output import default_sink
from penstock.apps.seeded_random import random_bits
from penstock.dataflow.sinks import Sink

WIDTH, HEIGHT = 192, 144
LOGOS = (
    *("anchor", "bridge", "comet", "drum", "eagle", "ferry", "globe", "harp"),
    *("iris", "jetty", "kite", "lantern", "mast", "needle", "oak", "pearl"),
)
Detector = Literal["orb", "sift"]
DETECTORS: tuple[Detector, ...] = ("orb", "sift")
LOGO_SIDE = 48
FRAMES_PER_S = 25.0  # rate in event time; also the arrival rate if neither a rate nor a number of rows is given
MAX_FEATURES = 300
MAX_DISTANCE: dict[Detector, float] = {  # up to which two descriptors match
    "orb": 20.0,  # differing bits out of 256
    "sift": 150.0,  # L2 distance
}
RATES = (1.0, 25.0)  # frames/s, of the paper
MIN_MATCHES = 3
FLUSH_ROWS = 2
DELAY_S = 1
FRAMES = "frame bigint, ts timestamp, pixels binary"
FEATURES = "frame bigint, ts timestamp, descriptor binary"
MATCHES = "frame bigint, ts timestamp, logo string"
_BYTES: dict[Detector, int] = {"orb": 32, "sift": 128}
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
    first, step, count = bits & 15, 1 + (bits >> 4) % 15, (0, 1, 1, 2)[bits >> 8 & 3]
    return tuple(sorted({LOGOS[(first + step * i) % len(LOGOS)] for i in range(count)}))


def frame_rates(seconds: int, seed: int = 0) -> tuple[tuple[float, float], ...]:
    """Return (second, frames/s) pairs: a new rate in each second, uniform in `RATES`, as a simulated source needs them.

    >>> rates = [rate for _, rate in frame_rates(10_000)]
    >>> 1.0 <= min(rates) < max(rates) <= 25.0, round(sum(rates) / len(rates))
    (True, 13)
    """
    drawn = np.random.default_rng([_SEED, 2, seed]).uniform(*RATES, seconds)
    return tuple((float(second), float(rate)) for second, rate in enumerate(drawn))


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
def _finder(detector: Detector) -> Any:
    if detector == "sift":
        return opencv().SIFT_create(nfeatures=MAX_FEATURES)
    return opencv().ORB_create(nfeatures=MAX_FEATURES, fastThreshold=15, edgeThreshold=12, patchSize=25)


def descriptors(pixels: np.ndarray, detector: Detector = "orb") -> np.ndarray:
    """Return the descriptors of the features of a picture: 32 bytes each, or 128 with SIFT."""
    features = _finder(detector).detectAndCompute(np.ascontiguousarray(pixels), None)[1]
    if features is None:
        return np.zeros((0, _BYTES[detector]), np.uint8)
    descriptors: np.ndarray = features.astype(np.uint8)  # SIFT returns whole numbers up to 255 as floats
    return descriptors


@functools.cache
def known(detector: Detector = "orb") -> tuple[np.ndarray, np.ndarray]:
    """Return the descriptors of all logos, and the index of the logo of each."""
    cv2 = opencv()
    by_logo = [
        descriptors(cv2.copyMakeBorder(logo(name), 24, 24, 24, 24, cv2.BORDER_CONSTANT, value=128), detector)
        for name in LOGOS
    ]
    return np.concatenate(by_logo), np.repeat(np.arange(len(LOGOS)), [len(part) for part in by_logo])


@functools.cache
def _matcher(detector: Detector) -> Any:
    matcher = opencv().BFMatcher(opencv().NORM_L2 if detector == "sift" else opencv().NORM_HAMMING)
    matcher.add([_comparable(known(detector)[0], detector)])
    return matcher


def _comparable(descriptors: np.ndarray, detector: Detector) -> np.ndarray:
    """Return descriptors as the matcher reads them."""
    return descriptors.astype(np.float32) if detector == "sift" else descriptors


def extract(row: dict[str, Any], detector: Detector = "orb") -> Iterator[dict[str, Any]]:
    """Yield one row for each feature of a frame."""
    pixels = np.frombuffer(row["pixels"], np.uint8).reshape(HEIGHT, WIDTH)
    for descriptor in descriptors(pixels, detector):
        yield {"frame": row["frame"], "ts": row["ts"], "descriptor": descriptor.tobytes()}


def match(row: dict[str, Any], detector: Detector = "orb") -> dict[str, Any] | None:
    """Return the logo with the nearest feature, or None if it is too far away."""
    feature = np.frombuffer(row["descriptor"], np.uint8).reshape(1, _BYTES[detector])
    (nearest,) = _matcher(detector).match(_comparable(feature, detector))
    if nearest.distance > MAX_DISTANCE[detector]:
        return None
    return {"frame": row["frame"], "ts": row["ts"], "logo": LOGOS[known(detector)[1][nearest.trainIdx]]}


def aggregate(matches: DataFrame, enough: int = MIN_MATCHES) -> DataFrame:
    counted = matches.groupBy("frame", "ts", "logo").agg(F.count("*").alias("matches"))
    return counted.where(F.col("matches") >= enough).select("frame", "logo", "matches")


def flow(
    output: Sink | None = None,
    *,
    rows: int | None = None,
    rows_per_s: float | None = None,
    enough: int = MIN_MATCHES,
    detector: Detector = "orb",
) -> penstock.Dataflow:
    """Return the dataflow on generated frames, with ORB or SIFT features."""
    opencv()  # fails early if it is not installed
    if detector not in DETECTORS:
        raise penstock.PenstockError(f"There is no detector '{detector}'; the detectors are {', '.join(DETECTORS)}.")
    flow = penstock.Dataflow("logos")
    frames = functools.partial(generator, rows=rows)
    rate = FRAMES_PER_S if rows is None and rows_per_s is None else rows_per_s
    (
        flow.source("frames", penstock.generate(frames, schema=FRAMES, rows=rows, rows_per_s=rate))
        .rows("extract", functools.partial(extract, detector=detector), schema=FEATURES)
        .rows("match", functools.partial(match, detector=detector), schema=MATCHES)
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


def oracle(rows: int, enough: int = MIN_MATCHES, detector: Detector = "orb") -> Counter[Seen]:
    """Return the logos in `rows` frames, without those of the flush, by comparing all features with all logos."""
    expected: Counter[Seen] = Counter()
    trained, logo_index = known(detector)

    def numbers(descriptors: np.ndarray) -> np.ndarray:
        return (descriptors if detector == "sift" else np.unpackbits(descriptors, axis=1)).astype(np.float64)

    coordinates = numbers(trained)
    lengths = (coordinates**2).sum(axis=1)
    for n in range(rows - FLUSH_ROWS):
        counts: Counter[str] = Counter()
        features = numbers(descriptors(picture(n), detector))
        # |a - b|^2 of whole numbers, which is exact here. For bits, it is their Hamming distance.
        squares = (features**2).sum(axis=1)[:, None] + lengths - 2.0 * features @ coordinates.T
        for distances in np.sqrt(squares) if detector == "sift" else squares:
            if distances.min() <= MAX_DISTANCE[detector]:
                counts[LOGOS[logo_index[int(distances.argmin())]]] += 1
        expected.update({(n, name, matches): 1 for name, matches in counts.items() if matches >= enough})
    return expected


def actual(output: Iterable[Mapping[str, Any]]) -> Counter[Seen]:
    return Counter((row["frame"], row["logo"], row["matches"]) for row in output)


def check(
    output: Iterable[Mapping[str, Any]], rows: int, enough: int = MIN_MATCHES, detector: Detector = "orb"
) -> list[str]:
    """Return the differences between the output and the oracle."""
    return differences(oracle(rows, enough, detector), actual(output))
