"""The running streaming queries of a run: how they start, stop, fail, retry and report progress."""
