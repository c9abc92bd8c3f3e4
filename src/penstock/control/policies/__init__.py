"""Policies, one per file or folder. `catalogue` is the table of all policies; the contract is `control.policy`."""
