"""What only the leader of a partition decides, before there is an entry.

`appender` judges batches of producers: an offset, or a duplicate. `dispatcher` gathers requests of
consumers until they share an entry. `pace` measures how fast something went lately.
"""
