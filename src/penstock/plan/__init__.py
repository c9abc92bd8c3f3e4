"""The Plan value: cuts, replicas, slots; validity against a dataflow; the difference of two plans; JSON."""
