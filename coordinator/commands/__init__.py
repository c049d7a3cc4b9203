"""What entries of the cluster group ask for and what is answered, as they are encoded.

Read `codec` first: commands about brokers, topics and producers, the list of all commands and
results, and their encoding. The others are grouped by subject: `placement`, `members` of consumer
groups, `queue` (groups, schedules, redrives) and `keys`. Their fields are a disk and wire format.
"""
