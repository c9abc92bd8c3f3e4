"""Networks of stations: traffic equations, variability of the internal flows, and latency of the whole network."""

from penstock.models.network.latency import NetworkLatency, network_latency
from penstock.models.network.scv import propagated_scv
from penstock.models.network.traffic import Traffic, TrafficStream, solve_traffic
from penstock.models.network.visits import Visits

__all__ = ["NetworkLatency", "Traffic", "TrafficStream", "Visits", "network_latency", "propagated_scv", "solve_traffic"]
