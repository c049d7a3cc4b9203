"""Writing the archive: the job, compaction, and the comparison with the brokers.

`plan` decides what to write, `staging` has Spark write it, `inspection` looks at what was written,
`hadoop_store` is the filesystem, `job` puts them together. What the archive looks like, and how a
commit is made, is `goqueue.archive`'s.
"""
