"""`python -m goqueue` is `goqueue-cli`, where the server's distribution is installed beside the
library."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, entry_points, version


def main() -> int:
    """Runs the command line, whose errors end the process by themselves."""
    for found in entry_points(group="console_scripts", name="goqueue-cli"):
        found.load()()
        return 0
    try:
        release = version("goqueue")
    except PackageNotFoundError:
        release = "unknown"
    text = f"the client library {release}; the command line comes with `pip install goqueue-server`"
    sys.stderr.write(f"goqueue is {text}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main())
