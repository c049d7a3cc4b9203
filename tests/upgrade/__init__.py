"""Upgrades between versions: released wheels and this tree, side by side in one cluster.

`wheels/` holds the release that upgrades are promised from, made by `make wheels`; `versions` puts
versions into folders that nodes run from, `load` is what goes on meanwhile.
"""
