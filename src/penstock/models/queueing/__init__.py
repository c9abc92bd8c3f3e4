"""Latency models of one station with k servers: Erlang formulas, M/M/k, GI/G/k and the protocol of all stations."""

from penstock.models.queueing.erlang import erlang_b, erlang_c
from penstock.models.queueing.errors import ModelError, UnstableError
from penstock.models.queueing.gigk import GIGk
from penstock.models.queueing.mmk import MMk
from penstock.models.queueing.station import LatencyMoments, StationModel

__all__ = ["GIGk", "LatencyMoments", "MMk", "ModelError", "StationModel", "UnstableError", "erlang_b", "erlang_c"]
