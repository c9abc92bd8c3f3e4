"""Policies, one a file: what to do about what was measured. Values in, values out."""
