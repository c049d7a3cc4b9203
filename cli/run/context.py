"""Named clusters in a file, as kubectl has them: `current-context` and `contexts`.

The file is `$GOQUEUE_CONFIG`, else `~/.config/goqueue/config.yaml` (`$XDG_CONFIG_HOME` counts),
else, when only that one exists, `~/.goqueue/config.yaml`. A missing file is one context `local`.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cli.output.errors import EXIT_NOT_FOUND, EXIT_USAGE, CliError
from goqueue.errors import BadRequest
from goqueue.models.options import did_you_mean

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
    is_named: bool = False
    """This run names the servers itself: those are meant, and no other."""

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
            entries = _mapping(_mapping(body).get("contexts") or {}, "contexts")
            contexts = {str(name): _context(str(name), one) for name, one in entries.items()}
            return cls(where, str(body.get("current-context") or ""), contexts)
        except _Wrong as error:
            line = _line_of(yaml.compose(text), error.keys)
            text = f"{where}, line {line}: {error}"
            raise CliError(text, exit_code=EXIT_USAGE) from error
        except yaml.YAMLError as error:
            raise CliError(f"{where}{_place_of(error)}", exit_code=EXIT_USAGE) from error

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
    found = {name: (files or {}).get(name) or getattr(chosen, name) for name in TLS_FILES}
    return Context(
        server=servers_text(server or chosen.server),
        is_named=server is not None,
        api_key=api_key or os.environ.get("GOQUEUE_API_KEY") or chosen.api_key,
        timeout_s=timeout_s if timeout_s is not None else chosen.timeout_s,
        archive=os.environ.get("GOQUEUE_ARCHIVE") or chosen.archive,
        ca_file=found["ca_file"],
        cert_file=found["cert_file"],
        key_file=found["key_file"],
    )


def current() -> dict[str, object]:
    """What `goqueue.open()` opens where it is told nothing: `servers`, and the client's options.
    Raises BadRequest where the file can't be used."""
    try:
        chosen = resolve(None, os.environ.get("GOQUEUE_CONTEXT") or None, None)
    except CliError as error:
        raise BadRequest(error.message) from error
    options: dict[str, object] = {"servers": chosen.server}
    given = {name: getattr(chosen, name) for name in ("api_key", "timeout_s", *TLS_FILES)}
    return options | {name: value for name, value in given.items() if value}


class _Wrong(ValueError):
    """What a file says under these keys can't be meant."""

    def __init__(self, text: str, *keys: str) -> None:
        super().__init__(f"{': '.join(keys)}: {text}" if keys else text)
        self.keys = keys


def _line_of(node: Any, keys: Sequence[str]) -> int:
    """The line, from 1 on, of the innermost of these keys that the document has."""
    line: int = node.start_mark.line + 1
    for wanted in keys:
        pairs = node.value if isinstance(node.value, list) else []
        found = [pair for pair in pairs if isinstance(pair, tuple) and pair[0].value == wanted]
        if not found:
            break
        line, node = found[0][0].start_mark.line + 1, found[0][1]
    return line


def _place_of(error: Any) -> str:
    """`, line 2: what is wrong there`, of what YAML's parser says in several lines."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    if mark is None or not problem:  # characters that no document may have
        return f": {' '.join(str(error).split())}"
    return f", line {mark.line + 1}: {problem}"


def _mapping(found: object, *keys: str) -> Mapping[Any, Any]:
    if not isinstance(found, Mapping):
        kind = "a list" if isinstance(found, list) else repr(found)[:40]
        raise _Wrong(f"names with their values are expected, not {kind}", *keys)
    return found


def _context(name: str, entry: object) -> Context:
    fields = _mapping(entry, "contexts", name)
    for field_ in fields:
        if field_ not in _FIELDS:
            text = f"unknown{did_you_mean(str(field_), _FIELDS)}"
            raise _Wrong(text, "contexts", name, str(field_))
    timeout = fields.get("timeout")
    if timeout is not None and not isinstance(timeout, int | float):
        raise _Wrong("a number of seconds is expected", "contexts", name, "timeout")
    files = {name: str(fields.get(name.replace("_", "-")) or "") for name in TLS_FILES}
    return Context(
        server=servers_text(fields.get("server") or SERVER_DEFAULT),
        api_key=str(fields.get("api-key") or ""),
        timeout_s=float(timeout) if timeout is not None else None,
        archive=str(fields.get("archive") or ""),
        ca_file=files["ca_file"],
        cert_file=files["cert_file"],
        key_file=files["key_file"],
    )


def servers_text(given: object) -> str:
    """Servers as they are kept: one text with commas, of a list, or of a text with commas or
    spaces."""
    texts = map(str, given) if isinstance(given, list) else [str(given)]
    return ",".join(url for text in texts for url in re.split(r"[,\s]+", text) if url)
