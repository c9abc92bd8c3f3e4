"""Sources on Spark: each kind of declared source as a streaming DataFrame whose offsets Penstock understands."""
