"""The archive of topics in Parquet files: what it looks like, and reading it without Spark.

`layout` names folders and files, `schema` the columns, `manifest` what is archived and committed,
`store` the few things that are asked of a filesystem.
"""
