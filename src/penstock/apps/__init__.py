"""Real dataflows, each with its data generator and its batch oracle."""
