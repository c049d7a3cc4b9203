"""The data pipeline on Spark: data source, sink, archive, replay past retention, analytics.

It speaks HTTP through `goqueue`, and never imports the service.
"""
