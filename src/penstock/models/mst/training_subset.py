"""Phase 1 of Imai et al. (2017): choose the VM counts to measure when a budget limits the largest of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, islice

import numpy as np

from penstock.models.mst.curve_families import PAPER_FAMILIES
from penstock.models.mst.fitted_curve import fit_and_predict, running_maximum
from penstock.models.mst.least_squares import Weighting, fit_sums
from penstock.models.mst.samples import Floats, SamplesError, ThroughputSamples, shared_vm_counts

EXHAUSTIVE_LIMIT = 1_000_000
_CHUNK = 4096  # subsets evaluated at once: limits memory, and is large enough for numpy to be efficient


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSubset:
    """The best subset of VM counts. `tried` of all `subsets` were evaluated.

    `rmse` is the error of throughput divided by the largest sample of each application.
    """

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
    limit: int = EXHAUSTIVE_LIMIT,
    seed: int = 0,
) -> TrainingSubset:
    """Return the subset S of VM counts up to `max_vms` from which Models 1 and 2 predict the other counts best.

    For each S, application and model: fit the normalised samples at S, take the running maximum over the measured
    counts V, and compute the RMSE over single samples at V - S. The score of S is the mean of these RMSEs. If there are
    more than `limit` subsets, that many are drawn at random with `seed`.

    >>> linear = ThroughputSamples.of("a", {m: [2.0 * m] for m in (1, 2, 3, 4, 8)})
    >>> best_training_subset([linear], max_vms=4, sizes=[2]).rmse < 1e-9
    True
    """
    if not samples:
        raise SamplesError("No application is given. The subset search needs the samples of at least one.")
    vms = shared_vm_counts(samples)
    allowed = [index for index, count in enumerate(vms) if count <= max_vms]
    possible = [size for size in sizes if 1 <= size <= len(allowed) and size < len(vms)]
    if not possible:
        raise SamplesError(
            f"The requested subset sizes are {list(sizes)}, but every application was measured on {len(allowed)} VM "
            f"counts up to {max_vms} (of {len(vms)}). Allow more VMs or smaller subsets; keep one count to test on."
        )
    total = sum(math.comb(len(allowed), size) for size in possible)
    subsets = (
        chain.from_iterable(combinations(allowed, size) for size in possible)
        if total <= limit
        else _random_subsets(allowed, possible, limit, np.random.default_rng(seed))
    )
    throughputs = [app_samples.only(vms).normalised().padded() for app_samples in samples]

    best: tuple[int, ...] = ()
    best_rmse, tried = np.inf, 0
    grid = np.array(vms, dtype=float)
    while chunk := list(islice(subsets, _CHUNK)):
        selected = np.zeros((len(chunk), len(vms)))
        for row, subset in zip(selected, chunk, strict=True):
            row[list(subset)] = 1.0
        rmse = np.mean([_held_out_rmse(throughput, selected, grid) for throughput in throughputs], axis=0)
        smallest = int(np.argmin(rmse))
        if rmse[smallest] < best_rmse:
            best_rmse, best = float(rmse[smallest]), tuple(vms[index] for index in chunk[smallest])
        tried += len(chunk)
    return TrainingSubset(vms=best, rmse=best_rmse, tried=tried, subsets=total)


def _random_subsets(
    allowed: Sequence[int], sizes: Sequence[int], draws: int, rng: np.random.Generator
) -> Iterator[tuple[int, ...]]:
    """Yield uniformly random subsets. Duplicates are possible; they cost time but do not change the result."""
    shares = np.array([math.comb(len(allowed), size) for size in sizes], dtype=float)
    for size, count in zip(sizes, rng.multinomial(draws, shares / shares.sum()), strict=True):
        for first in range(0, count, _CHUNK):
            rows = min(_CHUNK, count - first)
            picks = np.argsort(rng.random((rows, len(allowed))), axis=1)[:, :size]
            for row in picks.tolist():
                yield tuple(sorted(allowed[index] for index in row))


def _held_out_rmse(throughput: Floats, selected: Floats, vms: Floats) -> Floats:
    """Return, per subset, the mean over Models 1 and 2 of the RMSE at the VM counts that are not selected."""
    y = throughput
    n, total, squares = (~np.isnan(y)).sum(-1), np.nansum(y, -1), np.nansum(y**2, -1)
    held_out = 1.0 - selected
    errors = []
    for family in PAPER_FAMILIES:
        sums = fit_sums(y, family.link, Weighting.ABSOLUTE).restricted_to(selected)
        p = running_maximum(fit_and_predict(family, vms, sums, 0.0, vms))
        sse = (held_out * (n * p**2 - 2 * total * p + squares)).sum(-1)
        errors.append(np.sqrt(np.maximum(sse, 0.0) / (held_out * n).sum(-1)))
    mean: Floats = np.mean(errors, axis=0)
    return mean
