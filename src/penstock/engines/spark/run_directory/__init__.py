"""The files of a run: committed plan, checkpoints, journal and process records."""
