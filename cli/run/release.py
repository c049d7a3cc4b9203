"""Which release is installed here."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version

from cli.output.terminal import write

DISTRIBUTION = "goqueue-server"


def client_version() -> str:
    try:
        return installed_version(DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown"


def show_version(program: str) -> None:
    """`goqueue-cli 0.3.0`."""
    write(sys.stdout, f"{program} {client_version()}\n")
