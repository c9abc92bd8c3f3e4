"""Kafka: how to reach a cluster, a broker of one's own to try things on, topics, and load."""
