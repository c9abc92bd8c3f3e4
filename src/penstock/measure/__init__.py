"""Windows and observations, and the estimators over them: rates, selectivity, cost a row, sojourn."""

from penstock.measure.window import OperatorWindow, PipelineWindow, Sojourn, Window

__all__ = ["OperatorWindow", "PipelineWindow", "Sojourn", "Window"]
