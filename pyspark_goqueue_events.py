"""Where Spark finds the format `goqueue.events` by itself, as it finds `pyspark_goqueue`."""

try:
    from pipeline.events.datasource import EventsSource as DefaultSource
except ImportError:  # installed without the extra `spark`
    pass
else:
    __all__ = ["DefaultSource"]
