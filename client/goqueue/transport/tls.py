"""TLS as a client means it: whom it trusts, and how it shows who it is."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

from goqueue.wire.errors import BadRequest

StrPath = str | os.PathLike[str]
CA_FILE = "GOQUEUE_CA_FILE"
CERT_FILE = "GOQUEUE_CERT_FILE"
KEY_FILE = "GOQUEUE_KEY_FILE"


def tls_context(
    ca_file: StrPath | None = None,
    cert_file: StrPath | None = None,
    key_file: StrPath | None = None,
) -> ssl.SSLContext | None:
    """A context of PEM files, of the environment's where one is not given; None where there is none
    at all: the system's authorities are trusted then.

    `ca_file`: the only authorities to trust. `cert_file`: this client's certificate chain, with
    its key in `key_file` or in the same file. Raises BadRequest for files that are not usable.
    """
    ca_file = ca_file or os.environ.get(CA_FILE) or None
    cert_file = cert_file or os.environ.get(CERT_FILE) or None
    key_file = key_file or os.environ.get(KEY_FILE) or None
    if key_file and not cert_file:
        raise BadRequest("a client's key is given without its certificate")
    if not (ca_file or cert_file):
        return None
    context = ssl.create_default_context()
    if ca_file:
        context = _trusting(Path(ca_file))
    if cert_file:
        _show(context, Path(cert_file), None if key_file is None else Path(key_file))
    return context


def _trusting(ca_file: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:  # ssl.SSLError is one
        raise BadRequest(f"the authorities in {ca_file} can't be used: {_reason(error)}") from error


def _show(context: ssl.SSLContext, cert_file: Path, key_file: Path | None) -> None:
    try:
        context.load_cert_chain(cert_file, key_file, _no_password)
    except (OSError, ValueError) as error:
        names = f"{cert_file}" if key_file is None else f"{cert_file} with {key_file}"
        text = f"the client certificate {names} can't be used: {_reason(error)}"
        raise BadRequest(text) from error


def _no_password() -> str:
    raise ValueError("the key is encrypted: keys are read without a password")


def _reason(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)
