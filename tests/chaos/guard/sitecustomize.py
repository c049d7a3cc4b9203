"""Loaded by every process of a chaos cluster at its start: whoever pickles dies, and says so.

PySyncObj imports pickle, and its own transport and journal would use it on bytes from the network
and the disk. The server must never get there.
"""

import os
import pickle
import sys
import traceback

EXIT_CODE = 86


def _die(*_args: object, **_options: object) -> None:
    traceback.print_stack()
    print("[critical ] pickle was used in a node", file=sys.stderr, flush=True)
    os._exit(EXIT_CODE)


def _audit(event: str, _args: object) -> None:
    if event == "pickle.find_class":
        _die()


for _name in ("load", "loads", "dump", "dumps", "_load", "_loads", "_dump", "_dumps"):
    setattr(pickle, _name, _die)
sys.addaudithook(_audit)
