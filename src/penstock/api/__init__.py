"""The public Python API: functions that start, open, simulate and watch runs. `penstock` re-exports them."""
