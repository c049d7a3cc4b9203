"""What the log asks of a disk, the machine's own, and one in memory for tests.

Read `files` first: the interface, which tells durable from written, and its implementation on the
operating system. `memory` implements it with power cuts. `descriptors` bounds open files,
`failed_sync` remembers a failed sync for the next process, `space` watches how full the disk is.
"""
