"""Planners: turn predictions and demand into threads, processors, placements and VMs. One planner per file."""
