"""Capacity that comes in steps: VMs that do not fill a whole extra copy of the dataflow add nothing."""

from __future__ import annotations

import numpy as np

from penstock.models.mst.samples import Floats, SamplesError


def vms_per_step(units: int, cpus_per_vm: int) -> float:
    """VMs a step: with `units` processing units and one thread a vCPU, each unit has max(1, floor(m cpus / units))
    threads (equation 1 of the paper), so a thread more for every unit takes units / cpus VMs.

    >>> vms_per_step(units=3, cpus_per_vm=2)
    1.5
    """
    if units < 1 or cpus_per_vm < 1:
        raise SamplesError(f"{units} processing units on VMs of {cpus_per_vm} vCPUs; both must be at least 1")
    return units / cpus_per_vm


def effective_vms(vms: Floats, step: float) -> Floats:
    """The VMs that threads use: step * max(1, floor(m / step)); all of them where `step` is 0.

    >>> effective_vms(np.arange(1.0, 9.0), 1.5).tolist()
    [1.5, 1.5, 3.0, 3.0, 4.5, 6.0, 6.0, 7.5]
    """
    if step == 0:
        return vms
    # 1e-9: 4.5 / 1.5 must not floor to 2 because of binary fractions.
    return step * np.maximum(1.0, np.floor(vms / step + 1e-9))
