"""The archive of topics in Parquet files: what it looks like, and reading it without Spark.

Read `layout` (folders and files), `schema` (the columns), `manifest` (what is archived and
committed) and `store` (the few things that are asked of a filesystem), with `arrow_store`, which
does them. `reader` and `rows` read one topic back; `seam` and `replay` join archive and log into
one stream.
"""
