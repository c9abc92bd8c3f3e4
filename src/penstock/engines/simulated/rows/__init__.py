"""Row-by-row mode: every replica serves one row at a time, and rows wait in queues between stations."""
