"""The run's record in SQLite: windows, plan changes, errors. One writer, many readers, safe after kill -9."""
