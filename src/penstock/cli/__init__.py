"""The penstock command: one file a command, no logic."""
