"""The files of a run: committed plan, checkpoints, channels, journal and the record of its JVM."""
