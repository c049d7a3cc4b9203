"""Which release is running."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from node.api.upgrade import VersionView


def _installed() -> str:
    try:
        return version("goqueue-server")
    except PackageNotFoundError:  # run from a tree that was never installed
        return "0.0.0+source"


VERSION = VersionView(_installed())
