"""Maximum sustainable throughput (MST) as a function of the number of VMs, fitted to measurements.

Source: Imai, Patterson and Varela, "Maximum Sustainable Throughput Prediction for Large-Scale Data Streaming
Systems" (2017). Models 1 and 2, Algorithm 1 and the subset search are from the paper. The other curve families, the
weighting by relative error, the capacity steps and the intervals are additions.
"""
