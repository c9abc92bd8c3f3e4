"""Find the operators whose input does not grow with the input of the dataflow (Liu et al. 2017, section 4.1)."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping


def dominated_operators(inputs: Mapping[str, Collection[str]], logic_dependent: Collection[str]) -> frozenset[str]:
    """Return the operators with a logic-dependent operator before them on every path from a source.

    A breadth-first search starts at the consumers of the logic-dependent operators. An operator is dominated as soon as
    each of its inputs is logic-dependent or dominated; its consumers are examined next. Every operator is examined at
    most once per input.

    Args:
        inputs: The operators that each operator reads. A source reads none. The graph has no loops.
        logic_dependent: Operators whose output does not depend on the amount of their input.

    >>> sorted(dominated_operators({"rows": [], "top": ["rows"], "write": ["top"], "log": ["rows"]}, ["top"]))
    ['write']
    """
    consumers: dict[str, list[str]] = {name: [] for name in inputs}
    for name, producers in inputs.items():
        for producer in producers:
            consumers[producer].append(name)
    undetermined = {name: set(producers) - set(logic_dependent) for name, producers in inputs.items()}
    queue = deque(consumer for name in logic_dependent for consumer in consumers[name])
    dominated: set[str] = set()
    while queue:
        name = queue.popleft()
        if name in dominated or undetermined[name]:
            continue
        dominated.add(name)
        for consumer in consumers[name]:
            undetermined[consumer].discard(name)
            queue.append(consumer)
    return frozenset(dominated)
