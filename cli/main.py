"""`goqueue-cli`: the app, its nouns, and the options in front of them."""

from __future__ import annotations

import typer

from cli import (
    cluster,
    config,
    consume,
    delayed,
    dev,
    dlq,
    generate,
    group,
    produce,
    schedule,
    serve,
    settle,
    topic,
    trace,
    version,
)
from cli.options import (
    CaFileOption,
    CertFileOption,
    ContextOption,
    KeyFileOption,
    OutputOption,
    ServerOption,
    TimeoutOption,
)
from cli.session import GlobalOptions

app = typer.Typer(
    name="goqueue-cli",
    help="Talk to a GoQueue cluster, or run one. Any node answers any request.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
app.add_typer(topic.app, name="topic")
produce.register(app)
consume.register(app)
settle.register(app)
app.add_typer(group.app, name="group")
app.add_typer(dlq.app, name="dlq")
app.add_typer(delayed.app, name="delayed")
app.add_typer(schedule.app, name="schedule")
app.add_typer(trace.app, name="trace")
app.add_typer(cluster.app, name="cluster")
app.add_typer(config.app, name="config")
app.add_typer(generate.app, name="generate")
app.command("dev")(dev.dev)
app.command("serve", help=serve.HELP)(serve.serve)
version.register(app)


@app.callback()
def before(
    ctx: typer.Context,
    server: ServerOption = None,
    context: ContextOption = None,
    output: OutputOption = None,
    timeout: TimeoutOption = None,
    ca_file: CaFileOption = None,
    cert_file: CertFileOption = None,
    key_file: KeyFileOption = None,
) -> None:
    ctx.obj = GlobalOptions(server, context, output, timeout, ca_file, cert_file, key_file)


def main() -> None:
    """The entry point `goqueue-cli`."""
    app(prog_name="goqueue-cli")
