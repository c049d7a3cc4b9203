"""The brokers of a cluster: how they come together, who votes, and who is up.

Read `registry` first: the brokers and their states. `formation` makes one cluster of empty nodes,
`electorate` chooses the voters of the cluster group, `health` tells who is down or was wiped.
"""
