"""Stations joined by streams: traffic equations, variability of the flows inside, sojourn of the whole."""

from penstock.models.network.scv import propagated_scv
from penstock.models.network.sojourn import NetworkSojourn, network_sojourn
from penstock.models.network.traffic import Stream, Traffic, solve_traffic
from penstock.models.network.visits import Visits

__all__ = ["NetworkSojourn", "Stream", "Traffic", "Visits", "network_sojourn", "propagated_scv", "solve_traffic"]
