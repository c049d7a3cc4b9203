"""`goqueue pod-stop`: a pod's preStop hook. Tells the node in this container to stop in order, and
waits until it may be told to end.

It needs no network and no key: the node listens on a socket in its data directory, which only its
own user may open. What the node says goes to standard error, one line each.
"""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Annotated

import typer

from cli.output.errors import EXIT_USAGE, Report, print_report
from cli.output.terminal import note

CONFIG = Path("/etc/goqueue/goqueue.yaml")
EXIT_OK = 0
EXIT_NOT_DONE = 1

ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", help=f"The node's own file; {CONFIG} if there is one."),
]


def pod_stop(config: ConfigFile = None) -> None:
    """Stop the node in this pod in order, and wait until that is done: its leaderships handed over,
    and all its replicas elsewhere where the pod is not to come back. Ends with the pod's grace
    period; exit code 1: something would be missed, and it says what."""
    raise typer.Exit(run(config))


def run(config: Path | None) -> int:
    # only here may the command line know the service, and only when asked to
    from node.config.file import ConfigError, load_config
    from node.config.pod_names import STOP_SOCKET

    given = config or (CONFIG if CONFIG.exists() else None)
    try:
        loaded = load_config(str(given) if given else None)
    except ConfigError as error:
        print_report(Report(str(error), "", "", EXIT_USAGE))
        return EXIT_USAGE
    path = Path(loaded.data_dir) / STOP_SOCKET
    try:
        return _follow(path)
    except OSError as error:
        problem = f"no node to stop at {path}: {error.strerror or error}"
        print_report(Report(problem, "", "", EXIT_NOT_DONE))
        return EXIT_NOT_DONE


def _follow(path: Path) -> int:
    """Raises OSError where no node listens there; one that ends before it said so has stopped."""
    done = None
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        for line in connection.makefile("rb"):
            told = json.loads(line)
            note(told["said"])
            done = told["done"]
    return EXIT_OK if done else EXIT_NOT_DONE
