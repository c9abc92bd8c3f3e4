"""Kafka without Spark: connections to a cluster, topics, records, a local broker, and a load generator."""
