"""Experiments on an engine: trials, designs and stop rules."""
