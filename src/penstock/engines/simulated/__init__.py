"""A simulated engine: dataflows of any size under any plan, in simulated time."""

from penstock.engines.simulated.behaviour import (
    BatchCosts,
    Behaviour,
    ChangePause,
    Cluster,
    OperatorBehaviour,
    Queue,
    SourceBehaviour,
)
from penstock.engines.simulated.clock import SimulatedClock
from penstock.engines.simulated.distributions import (
    BehaviourError,
    Distribution,
    Empirical,
    Exponential,
    Fixed,
    Gamma,
    Geometric,
    Hyperexponential,
    Lognormal,
    Poisson,
    Uniform,
    erlang,
)
from penstock.engines.simulated.engine import Mode, SimulatedEngine

__all__ = [
    "BatchCosts",
    "Behaviour",
    "BehaviourError",
    "ChangePause",
    "Cluster",
    "Distribution",
    "Empirical",
    "Exponential",
    "Fixed",
    "Gamma",
    "Geometric",
    "Hyperexponential",
    "Lognormal",
    "Mode",
    "OperatorBehaviour",
    "Poisson",
    "Queue",
    "SimulatedClock",
    "SimulatedEngine",
    "SourceBehaviour",
    "Uniform",
    "erlang",
]
