"""Measurements. `python -m benchmarks` runs whole clusters and writes docs/reference/benchmarks.md.

Modules that are named after a part (`wire`, `raft`, `http_front`) are small benchmarks of that
part, each run by its own name: `python -m benchmarks.wire`.
"""
