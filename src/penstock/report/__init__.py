"""Reports of runs and studies: HTML pages, terminal tables, and the values that they show."""
