"""Default Storm mapping: threads go round robin over the slots, whatever they need.

Source: Shukla and Simmhan, JPDC 2018, algorithm DSM (Apache Storm's default scheduler). Threads are taken operator by
operator, slots VM by VM. It never lacks room, as it looks at none: use the prediction to see what it overloads.
"""

from __future__ import annotations

from itertools import cycle, islice

from penstock.planning.allocation import Allocation
from penstock.planning.placement import Placement, PlacementError
from penstock.planning.vms import VmCluster


def dsm(allocation: Allocation, cluster: VmCluster) -> Placement:
    if cluster.slots == 0:
        first = allocation.operators[0]
        raise PlacementError(
            method="dsm",
            operator=first.operator,
            threads=first.threads,
            lacked="there is no slot",
            slots=0,
            more_slots=1,
        )
    slots = cycle(range(cluster.slots))
    return Placement(
        method="dsm",
        cluster=cluster,
        slot_of={one.operator: tuple(islice(slots, one.threads)) for one in allocation.operators},
    )
