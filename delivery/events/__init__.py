"""The lives of all messages of a partition, in the order of its log: timelines in bulk.

Read `feed` first: entries in, events out. It keeps what it has read in `messages` and, for each
group, in `group`; `outcome` is what one entry brought about.
"""
