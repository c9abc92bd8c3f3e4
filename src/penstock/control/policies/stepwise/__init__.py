"""Stepwise: the profiled plan of the platform, recalibrated when platform, program or data change.

Source: Liu et al., "A Stepwise Auto-Profiling Method for Performance Optimization of Streaming Applications", TAAS
12(4), 2017, section 4.4. Read `policy` (the decisions), then `drift` (when the data has changed), `recalibration`
(steps 2 and 3 online), `online_trials` (their trials), `turn` (one decision), `observation` (features and throughput
from live windows) and `memory`.
"""

from penstock.control.policies.catalogue import PolicyParameters
from penstock.control.policies.stepwise.policy import Stepwise
from penstock.control.policies.stepwise.turn import RecalibrationSettings
from penstock.control.policy import Policy
from penstock.dataflow.errors import PenstockError

__all__ = ["RecalibrationSettings", "Stepwise", "build"]


def build(options: PolicyParameters) -> Policy:
    if options.profile is None:
        raise PenstockError("Policy 'stepwise' needs a profile; create one with 'penstock profile'.")
    return Stepwise(
        RecalibrationSettings(profile=options.profile, program_changed=options.program_changed, drift_s=options.drift_s)
    )
