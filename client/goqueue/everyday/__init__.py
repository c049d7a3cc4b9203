"""One way in for a directory, a server and a cluster.

Read `opening` first: `goqueue.open`. `targets` reads what it is to open.
"""
