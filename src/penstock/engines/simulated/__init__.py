"""A simulated engine: runs dataflows of any size under any plan in simulated time.

Modes: `rows/` simulates every row, `batches/` micro-batches, `fluid/` a continuous volume of rows.
"""

from penstock.engines.simulated.behaviour import (
    Behaviour,
    ChangePause,
    OperatorBehaviour,
    Queue,
    SimulatedBatchCosts,
    SimulatedCluster,
    SourceBehaviour,
    ThreadCosts,
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
)
from penstock.engines.simulated.engine import Mode, SimulatedEngine

__all__ = [
    "Behaviour",
    "BehaviourError",
    "ChangePause",
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
    "SimulatedBatchCosts",
    "SimulatedClock",
    "SimulatedCluster",
    "SimulatedEngine",
    "SourceBehaviour",
    "ThreadCosts",
    "Uniform",
]
