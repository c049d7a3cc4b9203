"""How secrets are kept: the cluster's is long enough, and files that hold one are their owner's.

Whoever answers a node's dial in a peer's place is shown a proof of the secret, and whoever opens
the console's login a token made with it. Guesses can be tried against both at leisure, so it must
be one that nobody guesses. A cluster that runs with a short one goes on, and warns.
"""

from __future__ import annotations

import os
import stat

from node.config.node import NodeConfig

SECRET_CHARACTERS_MIN = 32
"""At random: `openssl rand -hex 24` makes 48, of 192 bits."""


def founding_refusal(config: NodeConfig) -> str:
    """Why this node founds no cluster with its secret; empty where it may."""
    if not _is_short(config):
        return ""
    return (
        f"no cluster is founded with a cluster.secret of {len(config.cluster.secret)} characters,"
        f" as it could be guessed: it needs {SECRET_CHARACTERS_MIN} (openssl rand -hex 24)"
    )


def warnings(config: NodeConfig) -> tuple[str, ...]:
    """What should be changed about this node's secrets. Looks at the files."""
    found = []
    if _is_short(config):
        found.append(
            f"cluster.secret has {len(config.cluster.secret)} characters, and could be guessed:"
            f" change it for one of {SECRET_CHARACTERS_MIN} or more (openssl rand -hex 24)"
        )
    found += [problem for key, path in _files(config) if (problem := _exposed(key, path))]
    return tuple(found)


def _is_short(config: NodeConfig) -> bool:
    return 0 < len(config.cluster.secret) < SECRET_CHARACTERS_MIN


def _files(config: NodeConfig) -> list[tuple[str, str]]:
    tls, peer_tls = config.http.tls, config.cluster.tls
    named = [
        ("cluster.secretFile", config.cluster.secret_file),
        ("auth.adminKeyFile", config.auth.admin_key_file),
        ("tls.keyFile", tls.key_file if tls.enabled else ""),
        ("cluster.tls.keyFile", peer_tls.key_file if peer_tls.enabled else ""),
    ]
    return [(key, path) for key, path in named if path]


def _exposed(key: str, path: str) -> str:
    """Who else may use a file; empty for nobody.

    A file that is not this process's own may be its group's to read: so a pod is given what a
    Secret holds (0440, by root, with the pod's fsGroup).
    """
    try:
        found = os.stat(path)
    except OSError:
        return ""  # whoever needs it says so
    others = found.st_mode & stat.S_IRWXO
    group = found.st_mode & stat.S_IRWXG
    if found.st_uid != os.geteuid():
        group &= ~stat.S_IRGRP
    if not (others or group):
        return ""
    whom = "every user of this machine" if others else f"group {found.st_gid}"
    mode = stat.S_IMODE(found.st_mode)
    return f"{key}: {path} is open to {whom} (mode {mode:04o}): chmod 600 it"
