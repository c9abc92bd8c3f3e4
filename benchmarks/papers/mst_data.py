"""The measurements and the load of the MST paper.

The measurements of the authors and the World Cup trace are not part of this repository (no licence is stated for the
first). They are read from ../shared/data or $PENSTOCK_SHARED/data. `generated_samples` has the same form.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from penstock.dataflow.errors import PenstockError
from penstock.models.mst.curve_families import MODEL1, MODEL2, CurveFamily
from penstock.models.mst.samples import ThroughputSamples
from penstock.planning.trace import Trace

DATA = Path(os.environ.get("PENSTOCK_SHARED", Path(__file__).parents[3] / "shared")) / "data"
SAMPLES, REQUESTS = DATA / "mst" / "samples.tsv", DATA / "worldcup98" / "hourly.csv"
COUNTS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64, 80, 96, 128)  # V, equation 9
MAX_VMS = 128
TRAIN = (3, 4, 6, 8, 24)  # S_train: the result of phase 1 for a budget of 24 or 32 VMs
PHASE_1 = ("wc", "sol", "rsort")
# The model that the validation samples of the paper selected (figure 10), and the peak rate in MB/s (section 6.1).
PHASE_2: dict[str, tuple[CurveFamily, float]] = {
    "grep": (MODEL1, 32.0),
    "rcount": (MODEL1, 10.0),
    "visitor": (MODEL2, 48.0),
    "pv": (MODEL2, 46.0),
    "clean": (MODEL2, 5.0),
    "vhtree": (MODEL2, 49.0),
}
TITLES = {
    "wc": "Word Count",
    "sol": "SOL",
    "rsort": "Rolling Sort",
    "grep": "Grep",
    "rcount": "Rolling Count",
    "visitor": "Unique Visitor",
    "pv": "Page View",
    "clean": "Data Clean",
    "vhtree": "VHT",
}
HOURS = 500


def published_samples() -> dict[str, ThroughputSamples]:
    """Return the measurements of the authors by application; raise PenstockError if they are not there."""
    _check(SAMPLES)
    measured: dict[str, dict[int, list[float]]] = {}
    for line in SAMPLES.read_text().splitlines()[1:]:
        _, app, vms, *values = line.split("\t")
        measured.setdefault(app, {})[int(vms)] = [float(value) for value in values]
    return {app: ThroughputSamples.of(app, by_vms) for app, by_vms in measured.items()}


def generated_samples(seed: int = 0, samples: int = 6) -> dict[str, ThroughputSamples]:
    """Return made-up measurements of the nine applications, with scatter of 5 %.

    `wc`, `grep`, `rcount` and `clean` follow Amdahl's law, `sol`, `visitor` and `pv` grow almost linearly, `rsort` has
    a peak at 60 VMs, and `vhtree` does not scale.
    """
    rng = np.random.default_rng(seed)
    curves = {
        **{app: (rate, serial) for app, rate, serial in (("wc", 1.0, 0.1), ("grep", 1.2, 0.02))},
        **{app: (rate, serial) for app, rate, serial in (("rcount", 0.4, 0.04), ("clean", 0.5, 0.08))},
        **{app: (rate, 0.001) for app, rate in (("sol", 1.0), ("visitor", 0.6), ("pv", 0.5))},
        "vhtree": (50.0, 1.0),
    }
    result = {}
    for app in (*PHASE_1, *PHASE_2):
        by_vms = {}
        for m in COUNTS:
            if app == "rsort":
                mean = 0.5 * m - 0.5 / 120 * m**2 if m <= 60 else 15.0
            else:
                rate, serial = curves[app]
                mean = rate * m / (1 + serial * (m - 1))
            by_vms[m] = (mean * rng.lognormal(0, 0.05, size=samples)).tolist()
        result[app] = ThroughputSamples.of(app, by_vms)
    return result


def _check(file: Path) -> None:
    if not file.exists():
        raise PenstockError(f"'{file}' does not exist; set PENSTOCK_SHARED to the directory that contains 'data'.")


def requests_per_hour() -> np.ndarray:
    """Return the requests in each hour of the World Cup trace; raise PenstockError if it is not there."""
    _check(REQUESTS)
    return np.array([float(line.split(",")[1]) for line in REQUESTS.read_text().splitlines()[1:]])


def busiest(requests: np.ndarray, hours: int = HOURS) -> np.ndarray:
    """Return the consecutive hours with the most requests.

    >>> busiest(np.array([1.0, 5.0, 2.0, 4.0]), 2).tolist()
    [5.0, 2.0]
    """
    first = int(np.argmax(np.convolve(requests, np.ones(hours), "valid")))
    return requests[first : first + hours]


def hourly(requests: np.ndarray, peak: float) -> Trace:
    """Return the load of these hours, scaled to a peak rate."""
    return Trace(rates=tuple(requests.tolist()), interval_s=3600.0).scaled_to(peak)


def generated_requests(days: int = 25, seed: int = 0) -> np.ndarray:
    """Return a daily pattern with bursts, in requests per hour."""
    rng = np.random.default_rng(seed)
    hours = np.arange(24 * days)
    bursts = 1.0 + 2.0 * (rng.random(len(hours)) < 0.02)
    return (1.2 + np.sin(hours * 2 * np.pi / 24)) * rng.lognormal(0, 0.1, size=len(hours)) * bursts
