"""The data directory of one node: opened, written, checkpointed and closed as a whole.

Read `directory` first: it is what a node opens, with every group in it. `opening` recovers what a
directory holds. Then follow the writes: `flush` to the write-ahead log, `spill` to the segments,
`checkpoint` to drop what is not needed any more. `set_aside` keeps data that the node can no longer
answer for, `level_file` the feature level that its cluster has finished.
"""
