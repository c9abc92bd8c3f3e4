"""Measurement windows, and estimators over them: rates, selectivity, cost per row, latency, convergence."""

from penstock.measure.window import Latency, OperatorWindow, PipelineWindow, SharedCost, Window

__all__ = ["Latency", "OperatorWindow", "PipelineWindow", "SharedCost", "Window"]
