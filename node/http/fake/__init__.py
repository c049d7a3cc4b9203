"""A broker in memory, for testing the front alone and developing clients without a cluster.

Only tests and benchmarks import it. Read `broker` first; the others are its parts, a subject each.
"""
