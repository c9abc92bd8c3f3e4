"""The penstock command: one file per command, no logic."""
