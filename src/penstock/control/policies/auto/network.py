"""The model of a dataflow under the learned costs: mean and spread of the latency of windows for any replica counts.

A station is a run of operators that no queue divides: a region or a part of it between cuts (row by row), or a query
(micro-batch). A node is what gets a replica count: a region, or the regions that share a query. The stations of a node
have its count. A row that reaches a sink has the age

    age_i = T_i + sum over producers p of share_pi age_p

where share_pi is the part of the rows into i that p sent. Latency is therefore sum_i u_i T_i, with u = (I - S)^-1 w and
w the part of the sink rows that leave at i. Filters, branches and loops need no further treatment.

Row by row, T is the service time plus Sakasegawa's waiting time of GI/G/k. The mean over a window of w seconds
fluctuates: the waiting time has the variance W^2 (2/P - 1), P the probability of waiting, and the relaxation time

    tau = (ca^2 + cs^2)/2 (1 + rho) s / (k (1 - rho)^2)

so the mean over the window has the share 2 (x - 1 + e^-x) / x^2 of this variance, with x = w / tau. Replicas that share
slots are slower in proportion.

In micro-batches, T is 1.5 D. A batch of D seconds is followed by one of A + rho D, so dD/dt = A / D - (1 - rho). This
covers both the steady state D = A / (1 - rho) and the growth and drain of a backlog.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

Floats = np.ndarray

_NEAR_SATURATION = 0.97  # utilisation from which a backlog may grow over several windows
_LONGEST_S = 600.0  # a load near saturation is not expected to last longer
_LEAST_BATCH_S = 0.02
_BATCH_NOISE = 0.05  # relative spread of batch times that the model does not explain


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Latency of each window: mean over time, variance of the mean over a window, and variance over rows."""

    mean_s: Floats
    window_variance_s2: Floats
    row_variance_s2: Floats
    stuck: Floats  # probability that no batch ends within a window
    backlog_s: float  # latency that a backlog adds at the end


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueNetwork:
    """Nodes and stations with learned costs. Counts are by node, other arrays by station unless stated otherwise."""

    names: tuple[str, ...]  # of the nodes
    members: tuple[tuple[str, ...], ...]  # regions of each node
    stations: tuple[tuple[str, ...], ...]  # operators of each station
    node: np.ndarray  # node of each station
    cuts: frozenset[str]  # cuts of the plans of this network
    micro_batch: bool
    available_slots: int  # slots that the replicas share
    weight: Floats  # u
    visits: Floats  # rows that enter per external row
    first_visits: Floats  # rows into the first operator per external row
    row_s: Floats  # seconds of work per row that enters; micro-batch: per external row
    error: Floats  # relative standard error of the work: of row_s, and of the visits because of the selectivities
    service_scv: Floats
    arrival_scv: Floats
    limit: Floats  # by node: largest number of replicas
    width: Floats  # by node: slots per replica; a region that is cut inside has several tasks per replica
    hot_share: Floats  # share of the rows that one replica gets in any case, because of skew
    fixed_s: Floats  # A without tasks
    stages: Floats  # tasks per replica
    single_tasks: Floats  # tasks of regions that cannot be replicated
    task_s: float = 0.0

    def cautious(self, errors: float = 1.64) -> QueueNetwork:
        """Return the network at the unfavourable end of the intervals of its costs."""
        return replace(self, row_s=self.row_s * (1.0 + errors * self.error))

    def load(self, rate_per_s: float) -> Floats:
        """Return the busy replicas of each station."""
        return np.asarray(rate_per_s * self.row_s * (1.0 if self.micro_batch else self.visits))

    def utilisation(self, counts: Floats, rate_per_s: float) -> Floats:
        """Return the load of each station relative to its capacity."""
        return np.asarray(self.load(rate_per_s) * self._slowdown(counts) / self._servers(counts))

    def fewest(self, rate_per_s: float) -> Floats:
        """Return the smallest counts that are stable; infinite where none suffices."""
        work = self.load(rate_per_s)
        # k / (h (k - 1) + 1) > x  <=>  k (1 - h x) > x (1 - h)
        room = 1.0 - self.hot_share * work
        with np.errstate(divide="ignore", invalid="ignore"):
            counts = np.where(room > 0, np.floor(work * (1.0 - self.hot_share) / room) + 1.0, np.inf)
        most = np.ones(len(self.names))
        np.maximum.at(most, self.node, counts)
        return np.where(most > self.limit, np.inf, most)

    def slots(self, counts: Floats) -> int:
        return int(counts @ self.width)

    def replicas(self, counts: Floats) -> dict[str, int]:
        """Return the replicas of each region."""
        return {region: int(k) for node, k in zip(self.members, counts, strict=True) for region in node}

    def _servers(self, counts: Floats) -> Floats:
        """Return how many replicas of each station work at once if one of them gets its hot share of the rows."""
        own = counts[self.node]
        return np.asarray(own / (self.hot_share * (own - 1.0) + 1.0))

    def _slowdown(self, counts: Floats) -> float:
        if self.micro_batch:
            return 1.0
        return max(1.0, float(counts[self.node][self.row_s > 0.0].sum()) / self.available_slots)

    # ---- latencies

    def node_s(self, counts: Floats, rate_per_s: float) -> Floats:
        """Return u T of each node in the steady state, for counts with one column per alternative."""
        own = np.asarray(counts, float)[self.node]
        hot, row_s, weight = self.hot_share[:, None], self.row_s[:, None], self.weight[:, None]
        servers = own / (hot * (own - 1.0) + 1.0)
        rho = np.minimum(self.load(rate_per_s)[:, None] / servers, 0.999)
        if self.micro_batch:
            time_s = weight * 1.5 * self._fixed(own) / (1.0 - rho)
        else:
            scv = ((self.arrival_scv + self.service_scv) / 2.0)[:, None]
            wait = scv * rho ** (np.sqrt(2.0 * (servers + 1.0)) - 1.0) / (servers * (1.0 - rho)) * row_s
            time_s = weight * (wait + row_s)
        result = np.zeros_like(counts)
        np.add.at(result, self.node, time_s)
        return result

    def _fixed(self, own: Floats) -> Floats:
        """Return A of each station, for its counts."""
        shape = (-1,) + (1,) * (own.ndim - 1)
        tasks = own * self.stages.reshape(shape) + self.single_tasks.reshape(shape)
        return np.asarray(np.maximum(_LEAST_BATCH_S, self.fixed_s.reshape(shape) + self.task_s * tasks))

    def predict(
        self, counts: Floats, rates_per_s: Floats, *, step_s: float, window_s: float, backlog_rows: Floats | None = None
    ) -> Prediction:
        """Return the latencies under consecutive rates of `step_s` seconds each; the backlog is that at the start."""
        counts = np.asarray(counts, float)
        if self.micro_batch:
            return self._batches(counts, rates_per_s, step_s, window_s, backlog_rows)
        return self._rows(counts, rates_per_s, step_s, window_s, backlog_rows)

    def _rows(
        self, counts: Floats, rates: Floats, step_s: float, window_s: float, backlog_rows: Floats | None
    ) -> Prediction:
        servers, c, u = self._servers(counts), self.row_s * self._slowdown(counts), self.weight
        arrivals = rates[:, None] * self.visits
        load = arrivals * c / servers
        rho = np.minimum(load, 0.995)
        scv = (self.arrival_scv + self.service_scv) / 2.0
        waiting = rho ** (np.sqrt(2.0 * (servers + 1.0)) - 1.0)  # probability of waiting
        wait = scv * waiting * c / (servers * (1.0 - rho))
        drift_free = np.sqrt(2.0 * 2.0 * scv * c / servers * _LONGEST_S / np.pi)
        wait = np.minimum(wait, drift_free)
        relaxation = np.maximum(1e-9, scv * (1.0 + rho) * c / (servers * (1.0 - rho) ** 2))
        spread = wait**2 * (2.0 / np.maximum(waiting, 1e-9) - 1.0)
        rows = np.maximum(1.0, arrivals * window_s)
        service = self.service_scv * c**2
        window_variance = (u**2 * (spread * _averaged(window_s / relaxation) + service / rows)).sum(axis=1)
        row_variance = (u * (spread + service)).sum(axis=1)
        mean = (wait + c) @ u
        extra = np.zeros(len(rates))
        if backlog_rows is not None or (load > _NEAR_SATURATION).any():
            extra = self._drained(arrivals, servers / np.maximum(c, 1e-12), step_s, backlog_rows) @ u
        return Prediction(
            mean_s=mean + extra,
            window_variance_s2=window_variance,
            row_variance_s2=row_variance,
            stuck=np.zeros(len(rates)),
            backlog_s=float(extra[-1]) if len(extra) else 0.0,
        )

    def _drained(self, arrivals: Floats, capacity: Floats, step_s: float, backlog_rows: Floats | None) -> Floats:
        """Return the time that the backlog of each station adds in each step, first come, first served."""
        backlog = np.zeros(len(capacity)) if backlog_rows is None else backlog_rows.astype(float)
        result = np.empty_like(arrivals)
        growth = (arrivals - capacity) * step_s
        for step in range(len(arrivals)):
            after = np.maximum(0.0, backlog + growth[step])
            result[step] = (backlog + after) / 2.0 / capacity
            backlog = after
        return result

    def settling_s(self, counts: Floats, rate_per_s: float, *, waited_s: float, latency_s: float) -> float:
        """Return the time until the latency falls below a limit, if the first batch has the rows of so many seconds.

        The rows of a batch have waited for half the time before it on average, and are processed with it.
        """
        servers, fixed = self._servers(counts), self._fixed(counts[self.node])
        busy = rate_per_s * self.row_s / servers
        before = np.full(len(fixed), waited_s)
        batch = fixed + busy * before
        time_s = 0.0
        while float((before / 2.0 + batch) @ self.weight) > latency_s and time_s < _LONGEST_S:
            time_s += float(batch.max())
            before, batch = batch, fixed + busy * batch
        return time_s

    def _batches(
        self, counts: Floats, rates: Floats, step_s: float, window_s: float, backlog_rows: Floats | None
    ) -> Prediction:
        servers, fixed = self._servers(counts), self._fixed(counts[self.node])
        rho = rates[:, None] * self.row_s / servers
        batch = fixed / np.maximum(0.02, 1.0 - rho[0]) if len(rho) else fixed
        if backlog_rows is not None:  # a batch that takes the whole backlog
            batch = np.maximum(batch, fixed + backlog_rows * self.row_s / servers / np.maximum(self.visits, 1e-12))
        steady = np.where(rho < 1.0, fixed / np.maximum(1e-6, 1.0 - rho), np.inf)
        lasting = _lasting(batch, rho, fixed, steady, step_s)
        u = self.weight
        busy = np.minimum(rho, 0.99)
        per_row = self.row_s / servers
        # Fluctuations of the rows of a batch carry over to the next one, and average out over the batches of a window.
        scv = self.arrival_scv + self.service_scv / np.maximum(servers, 1.0)
        noise = scv * per_row**2 * rates[:, None] * lasting / (1.0 - busy**2)
        averaged = np.minimum(1.0, lasting * (1.0 + busy) / (1.0 - busy) / window_s)
        window_variance = ((1.5 * u) ** 2 * (noise * averaged + (_BATCH_NOISE * lasting) ** 2)).sum(axis=1)
        return Prediction(
            mean_s=1.5 * lasting @ u,
            window_variance_s2=window_variance,
            row_variance_s2=(lasting**2 / 12.0) @ u,
            stuck=np.maximum(0.0, 1.0 - window_s / np.maximum(lasting.max(axis=1), 1e-9)),
            backlog_s=float((lasting[-1] - np.minimum(steady[-1], lasting[-1])) @ u) if len(rho) else 0.0,
        )


def _lasting(batch: Floats, rho: Floats, fixed: Floats, steady: Floats, step_s: float) -> Floats:
    """Return the mean duration of the batches of each query in each step; `batch` is the duration at the start."""
    columns = []
    # Lists are several times faster than arrays of a few queries.
    for duration, least, loads, limits in zip(
        batch.tolist(), fixed.tolist(), rho.T.tolist(), steady.T.tolist(), strict=True
    ):
        column = []
        for load, limit in zip(loads, limits, strict=True):
            moved = duration + (least / duration - (1.0 - load)) * step_s
            after = max(moved, limit) if duration > limit else min(moved, limit)
            column.append((duration + after) / 2.0)
            duration = max(least, after)
        columns.append(column)
    return np.array(columns).T


def _averaged(ratio: Floats) -> Floats:
    """Return the variance of the mean over a window, relative to the variance at one time.

    >>> _averaged(np.array([1e-9, 1.0, 1000.0])).round(3).tolist()
    [1.0, 0.736, 0.002]
    """
    x = np.maximum(ratio, 1e-4)
    return np.asarray(np.minimum(1.0, 2.0 * (x - 1.0 + np.exp(-x)) / x**2))
