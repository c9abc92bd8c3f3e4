"""Default Storm mapping (DSM): assign threads to slots round robin, regardless of their CPU and memory.

Source: Shukla and Simmhan, JPDC 2018, algorithm DSM (the default scheduler of Apache Storm). Threads are taken operator
by operator, slots VM by VM. The mapping ignores capacity, so it may overload slots; the prediction shows which.
"""

from __future__ import annotations

from itertools import cycle, islice

from penstock.planning.allocation import Allocation
from penstock.planning.placement import Placement, PlacementError
from penstock.planning.vms import VmCluster


def dsm(allocation: Allocation, cluster: VmCluster) -> Placement:
    """Place every thread. A cluster without slots raises a PlacementError.

    >>> from penstock.planning.allocation import Bundle, OperatorAllocation
    >>> from penstock.planning.vms import ONE_SLOT, acquire
    >>> thread = Bundle(threads=1, rows_per_s=100.0, cpu=80.0, memory=10.0)
    >>> parse = OperatorAllocation(
    ...     operator="parse", input_rows_per_s=300.0, bundle=thread, bundles=3, rest=None, exclusive=False
    ... )
    >>> dsm(Allocation(method="lsa", rows_per_s=300.0, operators=(parse,)), acquire(2, [ONE_SLOT])).slot_of
    {'parse': (0, 1, 0)}
    """
    if cluster.slots == 0:
        first = allocation.operators[0]
        raise PlacementError(
            method="dsm",
            operator=first.operator,
            threads=first.threads,
            lacked="the cluster has no slot",
            slots=0,
            more_slots=1,
        )
    slots = cycle(range(cluster.slots))
    return Placement(
        method="dsm",
        cluster=cluster,
        slot_of={operator.operator: tuple(islice(slots, operator.threads)) for operator in allocation.operators},
    )
