"""`goqueue-cli`: the app, and the options in front of its nouns."""

from __future__ import annotations

import typer

from cli.nouns import Nouns
from cli.run.options import (
    ApiKeyOption,
    CaFileOption,
    CertFileOption,
    ContextOption,
    KeyFileOption,
    OutputOption,
    ServerOption,
    TimeoutOption,
    VersionOption,
)
from cli.run.session import GlobalOptions

app = typer.Typer(
    name="goqueue-cli",
    cls=Nouns,
    help="Talk to a GoQueue cluster, or run one. Any node answers any request.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


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
    api_key: ApiKeyOption = None,
    version: VersionOption = False,
) -> None:
    servers = None if server is None else ",".join(server)
    files = (ca_file, cert_file, key_file)
    ctx.obj = GlobalOptions(servers, context, output, timeout, *files, api_key)


def main() -> None:
    """The entry point `goqueue-cli`."""
    app(prog_name="goqueue-cli")
