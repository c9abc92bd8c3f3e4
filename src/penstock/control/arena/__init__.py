"""The arena: compare policies on the same dataflows, loads, first plans and seeds in the simulator.

Policies are compared by the results of their plans, not by their predictions: all plans are simulated, and a policy's
share is the latency of the best plan divided by the latency of the policy's last plan.
"""
