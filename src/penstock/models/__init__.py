"""Models that turn measurements into predictions. One model per file."""
