"""Options of the pipeline's Spark formats: texts by case-insensitive names, with clear errors.

Spark hands a format its options as texts. `Options` reads them by type; `Options.access` reads
those that say how a cluster is reached, the same for every format of ours:

- `servers`: comma-separated addresses of nodes; else GOQUEUE_SERVER, as for the command line.
- `apiKey`, or `apiKeyFile`, whose content it is; else GOQUEUE_API_KEY.
- `caFile`: the only authorities to trust over https; else GOQUEUE_CA_FILE.
- `requestTimeout`: for a request with all its repeats, such as `60s`.

Files and the environment are those of the driver: executors get what was in them.
"""

from __future__ import annotations

import difflib
import os
import ssl
from collections.abc import Collection, Mapping
from pathlib import Path

from goqueue.errors import GoQueueError
from goqueue.models.times import duration_ms
from goqueue.transport.http import API_KEY, DEFAULT_SERVER, key_headers, parse_servers
from goqueue.transport.tls import CA_FILE
from pipeline.broker_access import REQUEST_TIMEOUT_S, Access

SERVER = "GOQUEUE_SERVER"
ACCESS_OPTIONS = ("servers", "apiKey", "apiKeyFile", "caFile", "requestTimeout")
"""What `Options.access` reads."""


class OptionError(ValueError):
    """An option that can't be used: one sentence that begins with its name."""


class Options:
    """Options by case-insensitive names. Every reading method raises OptionError."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._given = {name.lower(): str(value) for name, value in options.items()}
        self._as_written = {name.lower(): name for name in options}

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._given

    def refuse_others(self, known: Collection[str]) -> None:
        """Raise for an option that is none of `known`: a typing error must not go unnoticed."""
        by_lower = {name.lower(): name for name in known}
        for name in self._given:
            if name not in by_lower:
                near = difflib.get_close_matches(name, by_lower, 1)
                hint = f"; is {by_lower[near[0]]} meant?" if near else ""
                raise OptionError(f"{self._as_written[name]}: there is no such option{hint}")

    def text(self, name: str, default: str | None = None) -> str | None:
        """The text without blanks around it; `default` where it is not given or blank."""
        return self._given.get(name.lower(), "").strip() or default

    def required(self, name: str) -> str:
        found = self.text(name)
        if found is None:
            raise OptionError(f"{name}: this option is required")
        return found

    def choice(self, name: str, choices: Collection[str], default: str) -> str:
        """One of the choices, whatever its case."""
        found = self.text(name, default)
        by_lower = {choice.lower(): choice for choice in choices}
        if found is None or found.lower() not in by_lower:
            raise OptionError(f"{name}: {_cut(found)} is none of {', '.join(choices)}")
        return by_lower[found.lower()]

    def flag(self, name: str, default: bool) -> bool:
        return self.choice(name, ("true", "false"), str(default).lower()) == "true"

    def number(self, name: str, *, least: int = 0, most: int = 2**63 - 1) -> int | None:
        """A whole number within bounds; None where it is not given."""
        found = self.text(name)
        if found is None:
            return None
        digits = found.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 19):
            raise OptionError(f"{name}: {_cut(found)} is not a whole number")
        if not least <= int(found) <= most:
            raise OptionError(f"{name}: {found} is not within {least} and {most}")
        return int(found)

    def span_s(self, name: str, default_s: float) -> float:
        """Seconds of a duration such as `30s`, `15m` or `250ms`; a bare number is milliseconds."""
        found = self.text(name)
        if found is None:
            return default_s
        try:
            return duration_ms(f"{found}ms" if found.isdigit() else found, name) / 1000
        except GoQueueError as error:
            raise OptionError(error.message) from None

    def access(self) -> Access:
        """How the cluster is reached: see the module."""
        servers = self.text("servers") or os.environ.get(SERVER) or DEFAULT_SERVER
        if "apiKey" in self and "apiKeyFile" in self:
            raise OptionError("apiKeyFile: give it or apiKey, not both")
        api_key = self.text("apiKey") or self._content("apiKeyFile") or os.environ.get(API_KEY)
        ca_pem = self._content("caFile", os.environ.get(CA_FILE))
        try:
            urls = tuple(parse_servers(servers))
        except GoQueueError as error:
            raise OptionError(f"servers: {error.message}") from None
        try:
            key_headers(api_key)
        except GoQueueError as error:
            raise OptionError(f"apiKey: {error.message}") from None
        if ca_pem is not None:
            try:
                ssl.create_default_context(cadata=ca_pem)
            except (ssl.SSLError, ValueError):
                raise OptionError("caFile: it holds no certificates in PEM form") from None
        timeout_s = self.span_s("requestTimeout", REQUEST_TIMEOUT_S)
        if timeout_s <= 0:
            raise OptionError("requestTimeout: 0 leaves no time for an answer")
        return Access(urls, (api_key or "").strip() or None, ca_pem, timeout_s)

    def _content(self, name: str, default: str | None = None) -> str | None:
        path = self.text(name, default)
        if path is None:
            return None
        try:
            return Path(path).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = (isinstance(error, OSError) and error.strerror) or "it is no text"
            raise OptionError(f"{name}: {path} can't be read: {reason}") from None


def _cut(text: str | None) -> str:
    return repr((text or "")[:80])
