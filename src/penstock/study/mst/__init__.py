"""Measure the maximum sustainable throughput (MST) of a dataflow for different numbers of executors.

Source: Imai, Patterson and Varela (2017), section 3: the throughput with sources that are never the bottleneck
(`saturated`). The second definition, the highest paced rate that is sustained (`paced`), checks the first and is ours.
"""
