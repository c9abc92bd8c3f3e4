"""Performance curves: the peak rate, CPU and memory of an operator on one slot, by its number of threads.

Source: Shukla and Simmhan, "Model-driven scheduling for distributed stream processing systems", JPDC 2018, Algorithm 1.
"""
