"""The running streaming queries of a run, their progress, retries and watermarks."""
