"""The dataflows of Kahveci and Gedik, "Joker: Elastic stream processing with organic adaptation", JPDC 2020, section 5.

Read `multiplication` (the operator), then `regions` (one and several regions, figures 4, 7, 10, 13 and 16) and `graph`
(seven operators with selectivities, figure 21). The functions return dataflows for Spark and for simulation;
`behaviour` gives the simulated costs of any of them.
"""

from penstock.apps.joker.graph import seven_operators
from penstock.apps.joker.multiplication import behaviour
from penstock.apps.joker.regions import (
    chain,
    costly_and_cheap,
    five_operators,
    four_operators,
    one_operator,
    reverse_tree,
    selectivities,
    tree,
    two_operators,
)

__all__ = [
    "behaviour",
    "chain",
    "costly_and_cheap",
    "five_operators",
    "four_operators",
    "one_operator",
    "reverse_tree",
    "selectivities",
    "seven_operators",
    "tree",
    "two_operators",
]
