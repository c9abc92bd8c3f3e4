"""Maximum sustainable throughput as a function of the number of VMs: one model a file, chosen by measurement.

Source: Imai, Patterson and Varela, "Maximum Sustainable Throughput Prediction for Large-Scale Data Streaming
Systems" (2017). Models 1 and 2, Algorithm 1 and the subset search are theirs; the other candidates, the weighting by
relative error, the steps and the intervals are ours.
"""
