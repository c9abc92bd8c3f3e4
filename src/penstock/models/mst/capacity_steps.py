"""Capacity in steps: VMs add capacity only if every processing unit gets another thread (Imai et al. 2017)."""

from __future__ import annotations

import numpy as np

from penstock.models.mst.samples import Floats, SamplesError


def vms_per_step(units: int, cpus_per_vm: int) -> float:
    """Return the VMs per capacity step: units / cpus_per_vm.

    Each of `units` processing units has max(1, floor(m cpus / units)) threads on m VMs with one thread per vCPU
    (equation 1), so one more thread for every unit needs units / cpus VMs.

    >>> vms_per_step(units=3, cpus_per_vm=2)
    1.5
    """
    if units < 1 or cpus_per_vm < 1:
        raise SamplesError(f"There are {units} units and {cpus_per_vm} vCPUs per VM. Both must be at least 1.")
    return units / cpus_per_vm


def effective_vms(vms: Floats, step: float) -> Floats:
    """Return the VMs that threads use: step * max(1, floor(m / step)); all VMs if `step` is 0.

    >>> effective_vms(np.arange(1.0, 9.0), 1.5).tolist()
    [1.5, 1.5, 3.0, 3.0, 4.5, 6.0, 6.0, 7.5]
    """
    if step == 0:
        return vms
    # 1e-9: 4.5 / 1.5 must not be rounded down to 2 because of binary fractions.
    return step * np.maximum(1.0, np.floor(vms / step + 1e-9))
