"""Compilation of a pipeline to a query: the compiler, event time, row functions, clocks and refusals."""
