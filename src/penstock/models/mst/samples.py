"""Measured throughput per VM count, and its CSV format."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.dataflow.errors import PenstockError
from penstock.models.mst.csv_table import quoted_row, read_csv

Floats = NDArray[np.float64]
MAX_THROUGHPUT = 1e30  # in any unit; the sums of squares of it and of its inverse are finite
MAX_VMS = 10_000  # curves are tables by VM count, so their memory must be bounded


class SamplesError(PenstockError):
    """The samples, or a request on them, cannot give a model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputSamples:
    """Throughput samples of one application in any unit; `throughput[i]` holds the samples on `vms[i]` VMs.

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
        """Return the samples from a map of VM count to throughputs; raise a SamplesError if a value is invalid."""
        vms = tuple(sorted(by_vms))
        samples = ThroughputSamples(app=app, vms=vms, throughput=tuple(tuple(by_vms[count]) for count in vms))
        for count, values in zip(samples.vms, samples.throughput, strict=True):
            if not 1 <= count <= MAX_VMS:
                raise SamplesError(
                    f"App '{app}' has a sample on {count} VMs. A VM count must be at least 1 and at most {MAX_VMS}."
                )
            if not values:
                raise SamplesError(f"App '{app}' has no sample on {count} VMs. Remove the count or measure it.")
            for value in values:
                if not (math.isfinite(value) and value > 0):
                    raise SamplesError(f"App '{app}' has throughput {value} on {count} VMs. It must be above 0.")
                if not 1 / MAX_THROUGHPUT <= value <= MAX_THROUGHPUT:
                    raise SamplesError(
                        f"App '{app}' has throughput {value:g} on {count} VMs. It must be between "
                        f"{1 / MAX_THROUGHPUT:g} and {MAX_THROUGHPUT:g}. Use another unit."
                    )
        return samples

    def only(self, counts: Iterable[int]) -> ThroughputSamples:
        """Return the samples on these VM counts; raise a SamplesError if one was not measured."""
        wanted = sorted(set(counts))
        missing = [count for count in wanted if count not in self.vms]
        if missing:
            raise SamplesError(f"App '{self.app}' has no samples on {missing} VMs. It has samples on {list(self.vms)}.")
        by_vms = dict(zip(self.vms, self.throughput, strict=True))
        return ThroughputSamples(app=self.app, vms=tuple(wanted), throughput=tuple(by_vms[count] for count in wanted))

    def without(self, counts: Iterable[int]) -> ThroughputSamples:
        """Return the samples on all other VM counts."""
        excluded = set(counts)
        return self.only(count for count in self.vms if count not in excluded)

    def normalised(self) -> ThroughputSamples:
        """Return the samples divided by the largest one, so that applications have equal weight (phase 1, step 1)."""
        peak = max(max(values) for values in self.throughput)
        scaled = tuple(tuple(value / peak for value in values) for values in self.throughput)
        return ThroughputSamples(app=self.app, vms=self.vms, throughput=scaled)

    def padded(self) -> Floats:
        """Return the samples as an array of shape (counts, samples), padded with NaN."""
        width = max(len(values) for values in self.throughput)
        table = np.full((len(self.vms), width), np.nan)
        for row, values in zip(table, self.throughput, strict=True):
            row[: len(values)] = values
        return table

    def means(self) -> Floats:
        """Return the mean throughput at each VM count."""
        return np.array([float(np.mean(values)) for values in self.throughput])


def parse_samples(text: str, *, source: str = "the samples") -> dict[str, ThroughputSamples]:
    """Parse CSV with the columns `app,vms,throughput`, one sample per row. Return the samples of each application.

    Raise a SamplesError that names `source` and the line if the text is invalid.

    >>> parse_samples("app,vms,throughput\\ngrep,1,2.0\\ngrep,1,2.2\\ngrep,4,7.5\\n")["grep"].vms
    (1, 4)
    """
    columns, rows = read_csv(text, source)
    if columns != ["app", "vms", "throughput"]:
        raise SamplesError(f"{source} has the columns {columns}. It must have app,vms,throughput.")
    by_app: dict[str, dict[int, list[float]]] = {}
    for line, row in rows:
        try:
            app, vms, throughput = row
            count, value = int(vms), float(throughput)
        except ValueError:
            raise SamplesError(
                f"{source}, line {line}: '{quoted_row(row)}' is not an app, a whole number of VMs and a throughput."
            ) from None
        if not app.strip():
            raise SamplesError(f"{source}, line {line}: the app has no name.")
        by_app.setdefault(app.strip(), {}).setdefault(count, []).append(value)
    if not by_app:
        raise SamplesError(f"{source} has no samples. Give at least one row of app,vms,throughput.")
    return {app: ThroughputSamples.of(app, by_vms) for app, by_vms in by_app.items()}


def samples_of_app(samples: Mapping[str, ThroughputSamples], app: str | None) -> ThroughputSamples:
    """Return the samples of an application, None being the only one; raise a SamplesError if there are none."""
    if app is None:
        if len(samples) != 1:
            raise SamplesError(f"There are samples of several apps: {', '.join(samples)}. Name one of them.")
        return next(iter(samples.values()))
    if app not in samples:
        raise SamplesError(f"There are no samples of app '{app}'. Samples exist for: {', '.join(samples)}.")
    return samples[app]


def shared_vm_counts(samples: Sequence[ThroughputSamples]) -> tuple[int, ...]:
    """Return the VM counts on which every application was measured."""
    shared = set(samples[0].vms).intersection(*(item.vms for item in samples))
    return tuple(sorted(shared))
