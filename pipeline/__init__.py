"""The data pipeline on Spark: data source, sink, archive, replay past retention, analytics.

It speaks HTTP through `goqueue`, and never imports the service. Importing it makes its formats
known to the Spark session that is active, if there is one; later ones find them by themselves.
"""

import sys


def _register() -> None:
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        from pipeline.datasource import register

        register(active)


if "pyspark" in sys.modules:  # else there can be no session
    _register()
