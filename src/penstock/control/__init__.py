"""The loop that monitors a run, decides, applies and records; policies live in one file each."""
