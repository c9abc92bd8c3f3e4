"""Observation -> prediction, one model a file."""
