"""Phase 1: which VM counts to measure, when a budget caps the largest of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, islice

import numpy as np

from penstock.models.mst.curve_families import PAPER_FAMILIES, CurveFamily
from penstock.models.mst.fitted_curve import fit_and_predict, running_maximum
from penstock.models.mst.least_squares import Weighting, fit_sums
from penstock.models.mst.samples import Floats, SamplesError, ThroughputSamples, shared_vm_counts

EXHAUSTIVE_LIMIT = 1_000_000
CHUNK = 4096  # subsets evaluated at once: bounds memory, keeps numpy busy


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSubset:
    """`rmse` is on throughput normalised by each application's largest sample; `tried` of `subsets` were evaluated."""

    vms: tuple[int, ...]
    rmse: float
    tried: int
    subsets: int

    @property
    def exhaustive(self) -> bool:
        return self.tried == self.subsets


def best_training_subset(
    samples: Sequence[ThroughputSamples],
    *,
    max_vms: int,
    sizes: Sequence[int] = (3, 4, 5),
    candidates: Sequence[CurveFamily] = PAPER_FAMILIES,
    weighting: Weighting = Weighting.ABSOLUTE,
    step: float = 0.0,
    limit: int = EXHAUSTIVE_LIMIT,
    seed: int = 0,
) -> TrainingSubset:
    """The subset S of VM counts up to `max_vms` whose models predict the other counts best.

    For each S, application and model: fit on the normalised samples at S, take the running maximum over the measured
    counts V, and the RMSE over single samples at V - S; S is judged by the mean of these RMSEs. More than `limit`
    subsets: that many are drawn at random with `seed`.

    >>> linear = ThroughputSamples.of("a", {m: [2.0 * m] for m in (1, 2, 3, 4, 8)})
    >>> best_training_subset([linear], max_vms=4, sizes=[2]).rmse < 1e-9
    True
    """
    if not samples:
        raise SamplesError("no application was given; the subset search needs the samples of at least one")
    vms = shared_vm_counts(samples)
    allowed = [index for index, count in enumerate(vms) if count <= max_vms]
    asked, sizes = list(sizes), [size for size in sizes if 1 <= size <= len(allowed) and size < len(vms)]
    if not sizes:
        raise SamplesError(
            f"a subset was to have one of {asked} VM counts, but every application was measured on {len(allowed)} "
            f"VM counts up to {max_vms} (of {len(vms)}); allow more VMs or fewer counts, and leave one to test on"
        )
    total = sum(math.comb(len(allowed), size) for size in sizes)
    drawn = _all(allowed, sizes) if total <= limit else _sampled(allowed, sizes, limit, np.random.default_rng(seed))
    tables = [_Table.of(item.only(vms).normalised(), candidates, weighting) for item in samples]

    best: tuple[int, ...] = ()
    best_rmse, tried = np.inf, 0
    at = np.array(vms, dtype=float)
    while chunk := list(islice(drawn, CHUNK)):
        chosen = np.zeros((len(chunk), len(vms)))
        for row, subset in zip(chosen, chunk, strict=True):
            row[list(subset)] = 1.0
        rmse = np.mean([table.rmse(chosen, at, step) for table in tables], axis=0)
        winner = int(np.argmin(rmse))
        if rmse[winner] < best_rmse:
            best_rmse, best = float(rmse[winner]), tuple(vms[index] for index in chunk[winner])
        tried += len(chunk)
    return TrainingSubset(vms=best, rmse=best_rmse, tried=tried, subsets=total)


def _all(allowed: Sequence[int], sizes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    return chain.from_iterable(combinations(allowed, size) for size in sizes)


def _sampled(
    allowed: Sequence[int], sizes: Sequence[int], draws: int, rng: np.random.Generator
) -> Iterator[tuple[int, ...]]:
    """Subsets at random, each as likely as another; one may come twice, which costs time and nothing else."""
    shares = np.array([math.comb(len(allowed), size) for size in sizes], dtype=float)
    for size, count in zip(sizes, rng.multinomial(draws, shares / shares.sum()), strict=True):
        for first in range(0, count, CHUNK):
            rows = min(CHUNK, count - first)
            picks = np.argsort(rng.random((rows, len(allowed))), axis=1)[:, :size]
            for row in picks.tolist():
                yield tuple(sorted(allowed[index] for index in row))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """One application's normalised samples, as the sums that a fit and a squared error need."""

    throughput: Floats
    candidates: tuple[CurveFamily, ...]
    weighting: Weighting

    @staticmethod
    def of(samples: ThroughputSamples, candidates: Sequence[CurveFamily], weighting: Weighting) -> _Table:
        return _Table(throughput=samples.padded(), candidates=tuple(candidates), weighting=weighting)

    def rmse(self, chosen: Floats, vms: Floats, step: float) -> Floats:
        """(subsets,): mean over the candidates of the RMSE at the counts that were not chosen."""
        y = self.throughput
        n, total, squares = (~np.isnan(y)).sum(-1), np.nansum(y, -1), np.nansum(y**2, -1)
        held_out = 1.0 - chosen
        errors = []
        for candidate in self.candidates:
            sums = fit_sums(y, candidate.link, self.weighting).restricted_to(chosen)
            p = running_maximum(fit_and_predict(candidate, vms, sums, step, vms))
            sse = (held_out * (n * p**2 - 2 * total * p + squares)).sum(-1)
            errors.append(np.sqrt(np.maximum(sse, 0.0) / (held_out * n).sum(-1)))
        mean: Floats = np.mean(errors, axis=0)
        return mean
