"""Fluid mode: rows are a continuous volume, for loads at which single rows are too many to simulate."""
