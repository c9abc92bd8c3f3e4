"""The dataflows of Shukla and Simmhan, "Model-driven scheduling for distributed stream processing systems", JPDC 2018.

`linear`, `diamond` and `star` are micro-DAGs of five tasks; `traffic`, `finance` and `grid` are larger. The tasks parse
XML, compute pi, write files, and call an HTTP service for blobs and records (`tasks`, `service`). Each dataflow takes
the options of `tasks.TaskOptions`, such as `linear:flow(pi_repeats=20, latency_ms=50)`.
"""
