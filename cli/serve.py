"""`goqueue-cli serve` and `goqueue -config FILE`: one node in this process, until SIGTERM.
`goqueue pod-stop` is a pod's preStop hook beside it.

Flags win over `GOQUEUE_*` variables, which win over the file; `--set key=value` sets any key of
`config.example.yaml`. All problems of a configuration are told at once, with exit code 2.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from cli.local import processes
from cli.local.pod_stop import pod_stop
from cli.output.errors import EXIT_USAGE, Report, print_report
from cli.run.release import show_version

HELP = """Run one node in this process until SIGTERM or Ctrl-C.

Flags win over GOQUEUE_* variables, which win over the file. `--set key=value` sets any key
of config.example.yaml.
"""

ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", help="YAML file; config.example.yaml has every key.", dir_okay=False),
]
NodeId = Annotated[
    str | None, typer.Option(help="This node's name, such as node-1; it must never change.")
]
Data = Annotated[Path | None, typer.Option(help="Data directory; created when missing.")]
Http = Annotated[str | None, typer.Option(help="Listen for clients on HOST:PORT.")]
Advertise = Annotated[str | None, typer.Option(help="URL that clients are told to use.")]
PeerListen = Annotated[str | None, typer.Option(help="Listen for the other nodes on HOST:PORT.")]
PeerAdvertise = Annotated[str | None, typer.Option(help="HOST:PORT that the other nodes dial.")]
Peer = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ID=HOST:PORT",
        help="A node of the cluster; repeat. Founders: all of them; who joins: any.",
    ),
]
SecretFile = Annotated[
    Path | None, typer.Option(help="File with the cluster's secret, which proves membership.")
]
Zone = Annotated[str | None, typer.Option(help="Replicas of a partition are spread over zones.")]
AutoCreate = Annotated[
    bool | None, typer.Option(help="Create a topic on the first publish to it.", show_default=False)
]
InsecureOpen = Annotated[
    bool,
    typer.Option(
        "--insecure-open",
        help="Serve beyond loopback without API keys: anybody who reaches it may do anything.",
    ),
]
AcceptLoss = Annotated[
    bool,
    typer.Option(
        "--accept-loss", help="Start although part of the only copy of the data is damaged."
    ),
]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any setting; repeat.")
]
POD_STOP = "pod-stop"
PidFile = Annotated[Path | None, typer.Option(help="Write this process's id here once started.")]


def serve(
    config: ConfigFile = None,
    node_id: NodeId = None,
    data: Data = None,
    http: Http = None,
    advertise: Advertise = None,
    peer_listen: PeerListen = None,
    peer_advertise: PeerAdvertise = None,
    peer: Peer = None,
    secret_file: SecretFile = None,
    zone: Zone = None,
    auto_create_topics: AutoCreate = None,
    insecure_open: InsecureOpen = False,
    accept_loss: AcceptLoss = False,
    set_: Set = None,
    pid_file: PidFile = None,
) -> None:
    overrides: dict[str, object] = {
        "broker.nodeId": node_id,
        "broker.dataDir": str(data) if data else None,
        "broker.listeners.http": http,
        "broker.listeners.internal": peer_listen,
        "broker.zone": zone,
        "broker.autoCreateTopics": auto_create_topics,
        "cluster.peers": ",".join(peer) if peer else None,
        "cluster.secretFile": str(secret_file) if secret_file else None,
        "cluster.advertise": peer_advertise,
        "cluster.clientAdvertise": advertise,
        "auth.insecureOpen": True if insecure_open else None,
        "storage.acceptLoss": True if accept_loss else None,
        **_pairs(set_ or []),
    }
    raise typer.Exit(run(config, overrides, pid_file))


serve.__doc__ = HELP


def run(config: Path | None, overrides: dict[str, object], pid_file: Path | None) -> int:
    """Load the configuration and serve; the exit code, 2 where the configuration is refused."""
    # only here may the command line know the service, and only when asked to
    from node.config.file import ConfigError, load_config

    try:
        loaded = load_config(str(config) if config else None, overrides=overrides)
    except ConfigError as error:
        print_report(Report(str(error), "", "", EXIT_USAGE))
        return EXIT_USAGE
    from log.disk.files import OsDisk
    from node.config import free_ports, listeners, open_listener

    if problem := (
        listeners.missing(loaded.listeners)
        or open_listener.refusal(loaded, OsDisk())
        or free_ports.refusal(loaded)
    ):
        print_report(Report(problem, "", "", EXIT_USAGE))
        return EXIT_USAGE
    from node.server import main_node

    if pid_file is not None:
        processes.write_pid(pid_file)
    try:
        return main_node(loaded)
    finally:
        if pid_file is not None and processes.read_pid(pid_file) == os.getpid():
            pid_file.unlink(missing_ok=True)


def register(app: typer.Typer) -> None:
    app.command("serve", help=HELP)(serve)


def main(arguments: list[str] | None = None) -> None:
    """`goqueue -config FILE`, as GoQueue's own binary is started, with any flag of `serve`.

    It imports less than `goqueue-cli serve` does, and is up sooner: `dev` starts its nodes so.
    """
    given = sys.argv[1:] if arguments is None else arguments
    help_names = {"help_option_names": ["-h", "--help"]}
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    if given[:1] == [POD_STOP]:
        app.command(POD_STOP)(pod_stop)
        app(given[1:], prog_name=f"goqueue {POD_STOP}")
    if given == ["--version"]:
        show_version("goqueue")
        return
    app.command("goqueue", help=HELP, context_settings=help_names)(serve)
    app([_modern(word) for word in given], prog_name="goqueue")


def _modern(word: str) -> str:
    """Go's flags have one dash, and may have a value after `=`."""
    name = word.partition("=")[0]
    return f"-{word}" if name == "-config" else word


def _pairs(settings: list[str]) -> dict[str, object]:
    pairs: dict[str, object] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise typer.BadParameter(f"--set takes KEY=VALUE, not {setting!r}")
        pairs[key] = value
    return pairs


if __name__ == "__main__":
    main()
