"""Prediction and demand -> plan, one planner a file."""
