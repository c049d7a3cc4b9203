"""Whole replicas that go from node to node as files.

Read `manifest` first: what a replica consists of. `export` is the side that is copied from,
`staging` the side that gathers files, checks them, and hands them over to be installed. `beyond`
decides what of the replaced log is kept.
"""
