"""Measured throughput by VM count, and its CSV."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.dataflow.errors import PenstockError
from penstock.models.mst.csv_table import quoted_row, read_csv

Floats = NDArray[np.float64]
MAX_THROUGHPUT = 1e30  # in any unit: sums of squares of it, and of its inverse, are finite
MAX_VMS = 10_000  # fit_and_predict are tables by VM count: what they take in memory must stay bounded


class SamplesError(PenstockError):
    """The samples, or a request on them, cannot give a model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputSamples:
    """Throughput samples (any unit, say MB/s) of one application; `throughput[i]` were taken on `vms[i]` VMs.

    >>> s = ThroughputSamples.of("grep", {2: [2.3, 2.1], 1: [2.0]})
    >>> s.vms, s.throughput
    ((1, 2), ((2.0,), (2.3, 2.1)))
    >>> s.only([2]).means().round(2).tolist()
    [2.2]
    """

    app: str
    vms: tuple[int, ...]
    throughput: tuple[tuple[float, ...], ...]

    @staticmethod
    def of(app: str, by_vms: Mapping[int, Iterable[float]]) -> ThroughputSamples:
        vms = tuple(sorted(by_vms))
        samples = ThroughputSamples(app=app, vms=vms, throughput=tuple(tuple(by_vms[count]) for count in vms))
        for count, values in zip(samples.vms, samples.throughput, strict=True):
            if not 1 <= count <= MAX_VMS:
                raise SamplesError(
                    f"app '{app}' has a sample on {count} VMs; a VM count is at least 1, at most {MAX_VMS}"
                )
            if not values:
                raise SamplesError(f"app '{app}' has no sample on {count} VMs; leave the count out or measure it")
            for value in values:
                if not (math.isfinite(value) and value > 0):
                    raise SamplesError(f"app '{app}' has throughput {value} on {count} VMs; it must be above 0")
                if not 1 / MAX_THROUGHPUT <= value <= MAX_THROUGHPUT:
                    raise SamplesError(
                        f"app '{app}' has throughput {value:g} on {count} VMs; it must lie between "
                        f"{1 / MAX_THROUGHPUT:g} and {MAX_THROUGHPUT:g}: give it in another unit"
                    )
        return samples

    def only(self, counts: Iterable[int]) -> ThroughputSamples:
        """The samples taken on these VM counts, all of which must have been measured."""
        wanted = sorted(set(counts))
        missing = [count for count in wanted if count not in self.vms]
        if missing:
            raise SamplesError(f"app '{self.app}' has no samples on {missing} VMs; it has them on {list(self.vms)}")
        by_vms = dict(zip(self.vms, self.throughput, strict=True))
        return ThroughputSamples(app=self.app, vms=tuple(wanted), throughput=tuple(by_vms[count] for count in wanted))

    def without(self, counts: Iterable[int]) -> ThroughputSamples:
        left_out = set(counts)
        return self.only(count for count in self.vms if count not in left_out)

    def normalised(self) -> ThroughputSamples:
        """Divided by the largest sample, so that no application outweighs another (phase 1, step 1)."""
        peak = max(max(values) for values in self.throughput)
        scaled = tuple(tuple(value / peak for value in values) for values in self.throughput)
        return ThroughputSamples(app=self.app, vms=self.vms, throughput=scaled)

    def padded(self) -> Floats:
        """(VM counts x samples), NaN where a count has fewer samples than another."""
        width = max(len(values) for values in self.throughput)
        table = np.full((len(self.vms), width), np.nan)
        for row, values in zip(table, self.throughput, strict=True):
            row[: len(values)] = values
        return table

    def means(self) -> Floats:
        return np.array([float(np.mean(values)) for values in self.throughput])


def parse_samples(text: str, *, source: str = "the samples") -> dict[str, ThroughputSamples]:
    """CSV with the columns `app,vms,throughput`, one sample a row -> samples by application, in order of appearance.

    >>> parse_samples("app,vms,throughput\\ngrep,1,2.0\\ngrep,1,2.2\\ngrep,4,7.5\\n")["grep"].vms
    (1, 4)
    """
    columns, rows = read_csv(text, source)
    if columns != ["app", "vms", "throughput"]:
        raise SamplesError(f"{source} has the columns {columns}; it must have app,vms,throughput")
    found: dict[str, dict[int, list[float]]] = {}
    for line, row in rows:
        try:
            app, vms, throughput = row
            count, value = int(vms), float(throughput)
        except ValueError:
            raise SamplesError(
                f"{source}, line {line}: '{quoted_row(row)}' is not an app, a whole number of VMs and a throughput"
            ) from None
        if not app.strip():
            raise SamplesError(f"{source}, line {line}: the app has no name")
        found.setdefault(app.strip(), {}).setdefault(count, []).append(value)
    if not found:
        raise SamplesError(f"{source} holds no samples; give at least one row of app,vms,throughput")
    return {app: ThroughputSamples.of(app, by_vms) for app, by_vms in found.items()}


def samples_of_app(samples: Mapping[str, ThroughputSamples], app: str) -> ThroughputSamples:
    if app not in samples:
        raise SamplesError(f"there are no samples of app '{app}'; there are of {', '.join(samples)}")
    return samples[app]


def shared_vm_counts(samples: Sequence[ThroughputSamples]) -> tuple[int, ...]:
    """The VM counts that every application was measured on."""
    shared = set(samples[0].vms).intersection(*(item.vms for item in samples))
    return tuple(sorted(shared))
