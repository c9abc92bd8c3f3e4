"""Reproduction of the papers that Penstock implements: one module per paper, and what it needs.

`python -m benchmarks.papers [PART ...]` computes the figures of the parts and writes docs/papers/PART-results.md.
"""
