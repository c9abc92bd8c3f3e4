"""The engine on Spark Structured Streaming: it compiles a plan to queries, measures them and changes them."""
