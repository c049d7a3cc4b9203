"""Named clusters in a file, as kubectl has them: `current-context` and `contexts`.

The file is `$GOQUEUE_CONFIG`, else `~/.config/goqueue/config.yaml` (`$XDG_CONFIG_HOME` counts),
else, when only that one exists, `~/.goqueue/config.yaml`. A missing file is one context `local`.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cli.errors import EXIT_NOT_FOUND, EXIT_USAGE, CliError

SERVER_DEFAULT = "http://127.0.0.1:8080"
CONTEXT_DEFAULT = "local"
TLS_FILES = ("ca_file", "cert_file", "key_file")
_FIELDS = {"server", "api-key", "timeout", "ca-file", "cert-file", "key-file", "archive"}


@dataclass(frozen=True, slots=True)
class Context:
    """One cluster: its servers (comma separated), key, default timeout in seconds, files for TLS
    (authorities to trust, a client's certificate and its key), and where its archive is."""

    server: str = SERVER_DEFAULT
    api_key: str = ""
    timeout_s: float | None = None
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    archive: str = ""

    def to_yaml(self) -> dict[str, object]:
        body: dict[str, object] = {"server": self.server}
        if self.api_key:
            body["api-key"] = self.api_key
        if self.timeout_s is not None:
            body["timeout"] = self.timeout_s
        for name in TLS_FILES:
            if path := getattr(self, name):
                body[name.replace("_", "-")] = path
        if self.archive:
            body["archive"] = self.archive
        return body


@dataclass(slots=True)
class ContextFile:
    """The file's content; `save` writes it back atomically, readable by its owner only."""

    path: Path
    current: str = CONTEXT_DEFAULT
    contexts: dict[str, Context] = field(default_factory=dict[str, Context])

    @classmethod
    def load(cls, path: Path | None = None) -> ContextFile:
        """Raises `CliError` when the file isn't what it should be."""
        where = path or default_path()
        try:
            text = where.read_text(encoding="utf-8")
        except FileNotFoundError:
            return cls(where, contexts={CONTEXT_DEFAULT: Context()})
        import yaml  # most runs have no file

        try:
            body = yaml.safe_load(text) or {}
            if not isinstance(body, Mapping):
                raise ValueError("a mapping is expected")
            contexts = {
                str(name): _context(str(name), entry)
                for name, entry in (body.get("contexts") or {}).items()
            }
            return cls(where, str(body.get("current-context") or ""), contexts)
        except (yaml.YAMLError, ValueError, AttributeError) as error:
            raise CliError(f"{where}: {error}", exit_code=EXIT_USAGE) from error

    def get(self, name: str) -> Context:
        if name not in self.contexts:
            raise CliError(
                f'there is no context "{name}"',
                hint="`goqueue-cli config get-contexts` shows them; `config set-context` makes one",
                exit_code=EXIT_NOT_FOUND,
            )
        return self.contexts[name]

    def to_yaml(self) -> dict[str, object]:
        contexts = {name: context.to_yaml() for name, context in self.contexts.items()}
        return {"current-context": self.current, "contexts": contexts}

    def save(self) -> None:
        import yaml

        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=".config-")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            yaml.safe_dump(self.to_yaml(), file, sort_keys=False)
        Path(name).replace(self.path)


def default_path() -> Path:
    named = os.environ.get("GOQUEUE_CONFIG")
    if named:
        return Path(named).expanduser()
    home = os.environ.get("XDG_CONFIG_HOME")
    modern = (Path(home) if home else Path.home() / ".config") / "goqueue" / "config.yaml"
    old = Path.home() / ".goqueue" / "config.yaml"
    return old if old.exists() and not modern.exists() else modern


def resolve(
    server: str | None,
    context: str | None,
    timeout_s: float | None,
    files: Mapping[str, str | None] | None = None,
    api_key: str | None = None,
) -> Context:
    """What this run talks to: flags, then environment (both arrive here), then the file. `files`
    by the names of `TLS_FILES`.

    A server that is named wins over a context's; a named context must exist.
    """
    file = ContextFile.load()
    chosen = Context()
    if context is not None:
        chosen = file.get(context)
    elif file.current and server is None:
        chosen = file.get(file.current)
    return Context(
        server=server or chosen.server,
        api_key=api_key or os.environ.get("GOQUEUE_API_KEY") or chosen.api_key,
        timeout_s=timeout_s if timeout_s is not None else chosen.timeout_s,
        archive=os.environ.get("GOQUEUE_ARCHIVE") or chosen.archive,
        **{name: (files or {}).get(name) or getattr(chosen, name) for name in TLS_FILES},
    )


def _context(name: str, entry: object) -> Context:
    if not isinstance(entry, Mapping):
        raise ValueError(f"context {name}: a mapping is expected")
    unknown = set(entry) - _FIELDS
    if unknown:
        raise ValueError(f"context {name}: unknown {', '.join(sorted(map(str, unknown)))}")
    timeout = entry.get("timeout")
    if timeout is not None and not isinstance(timeout, int | float):
        raise ValueError(f"context {name}: timeout is in seconds")
    return Context(
        server=str(entry.get("server") or SERVER_DEFAULT),
        api_key=str(entry.get("api-key") or ""),
        timeout_s=float(timeout) if timeout is not None else None,
        archive=str(entry.get("archive") or ""),
        **{name: str(entry.get(name.replace("_", "-")) or "") for name in TLS_FILES},
    )
