"""Engines, which run a dataflow under a plan. `ports` defines their contracts; each engine is a package."""
