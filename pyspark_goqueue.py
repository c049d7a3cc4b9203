"""Where Spark finds the format `goqueue` by itself: it looks into modules that begin so.

It must import without what Spark needs, or Spark would find no format at all.
"""

try:
    from pipeline.datasource import GoQueueSource as DefaultSource
except ImportError:  # installed without the extra `spark`
    pass
else:
    __all__ = ["DefaultSource"]
