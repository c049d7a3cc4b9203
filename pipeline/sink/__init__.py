"""Writing DataFrames into topics, each row once however often Spark tries.

`columns` takes Arrow batches apart, `rows` holds what goes into one partition, `task` routes and
gathers, `sequence` appends exactly once, `writer` is what Spark calls.
"""
