"""Reading topics into DataFrames: options, ranges of offsets, stored batches as Arrow columns."""
