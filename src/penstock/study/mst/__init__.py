"""Maximum sustainable throughput, measured: by a source that is never the limit, and by paced rates that are kept up.

Source: Imai, Patterson and Varela (2017), section 3. The second definition, which checks the first, is ours.
"""
