"""`python -m tests.plants [NAME ...]`: plant each bug, and tell whether its test fails; exits with
1 where one does not."""

from __future__ import annotations

import sys
import time

from tests.plants.registry import PLANTS, is_found


def main() -> int:
    names = sys.argv[1:] or list(PLANTS)
    missed: list[str] = []
    for name in names:
        began = time.monotonic()
        found = is_found(PLANTS[name])
        told = "found" if found else "NOT FOUND"
        took_s = time.monotonic() - began
        print(f"{name:32} {told:10} {took_s:6.1f} s  {PLANTS[name].test}", flush=True)
        if not found:
            missed.append(name)
    print(f"found {len(names) - len(missed)} of {len(names)} by unit tests")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
