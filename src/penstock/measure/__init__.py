"""Windows and observations, and the estimators over them: rates, selectivity, cost a row, latency."""

from penstock.measure.window import Latency, OperatorWindow, PipelineWindow, Window

__all__ = ["Latency", "OperatorWindow", "PipelineWindow", "Window"]
