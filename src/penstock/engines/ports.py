"""The contract of an engine: what the loop and studies may ask of whatever runs a plan."""
