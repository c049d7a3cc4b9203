"""Bugs planted by name in the program, each with the unit test that must fail then.

What `tests/sim/mutants.py` is for the simulation and `tests/unit/raft/mutants.py` for one group,
this is for everything else, above all for what the simulation does not run as it is. Read
`plant.py`, then the registries.
"""
