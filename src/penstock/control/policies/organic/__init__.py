"""Organic adaptation (Joker): cuts and replicas of all bottleneck regions are changed together, and evaluated.

Source: Kahveci and Gedik, "Joker: Elastic stream processing with organic adaptation", JPDC 2020, sections 4.1 to 4.5.
Read `adaptation` (one period: algorithms 1 and 5 to 7), then `resolution` (bottlenecks and changes: algorithms 2 to 4),
`splitting` (the gain of a split), `profile` (the metrics), `release` (merging and shrinking, an extension), `state`
(what is remembered), `moved_state` and `policy` (the decision).
"""

from penstock.control.policies.catalogue import PolicyParameters
from penstock.control.policies.organic.policy import Organic
from penstock.control.policy import Policy

__all__ = ["Organic", "build"]


def build(options: PolicyParameters) -> Policy:
    return Organic(options.adaptation)
