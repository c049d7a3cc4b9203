"""Load a node's configuration from YAML, the environment and flags, reporting every problem.

Flags win over the environment, which wins over the file, which wins over the defaults.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from node.config.node import LOOPBACK, NodeConfig
from node.config.option import Option, flatten, peers
from node.config.pod_names import as_pod, pod_problems

FILE_BYTES_MAX = 1 << 20

# GoQueue's own variables that mean nothing here, or are not a node's, and what we say about them.
_WITHOUT_EFFECT = {
    "GOQUEUE_GRPC_REFLECTION": "there is no gRPC listener",
    "GOQUEUE_CLUSTER_ENABLED": "a node with peers is a cluster, one without is not",
    "GOQUEUE_CLUSTER_QUORUM": "the quorum is always a majority of the replicas",
    "GOQUEUE_TLS_SELF_SIGNED": "certificates are read from files",
    "GOQUEUE_TLS_CLIENT_AUTH": "clients need certificates when the authorities are set",
    "GOQUEUE_TLS_MIN_VERSION": "TLS 1.2 is the least",
    "GOQUEUE_CLUSTER_TLS_SELF_SIGNED": "certificates are read from files",
    "GOQUEUE_CLUSTER_TLS_CLIENT_AUTH": "peers always prove themselves",
    "GOQUEUE_CLUSTER_TLS_MIN_VERSION": "TLS 1.2 is the least",
}
_NOT_A_NODES = re.compile(
    r"GOQUEUE_(SERVER|CONTEXT|API_KEY|CA_FILE|CERT_FILE|KEY_FILE|TIMEOUT|CONFIG|SAMPLE_DATA|ADMIN_\w+|TEST_\w+"
    # what Kubernetes sets for every service whose name begins with goqueue
    r"|(\w+_)?SERVICE_(HOST|PORT)(_\w+)?|(\w+_)?PORT(_\d+_(TCP|UDP)(_(PROTO|PORT|ADDR))?)?)"
)


class ConfigError(Exception):
    """The configuration can't be used; `problems` says all that is wrong, each with its source."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        listed = "\n".join(f"  {number}. {what}" for number, what in enumerate(problems, 1))
        count = f"{len(problems)} problem{'s' * (len(problems) != 1)}"
        super().__init__(f"{count} in the configuration:\n{listed}")


@dataclasses.dataclass(frozen=True, slots=True)
class _Setting:
    """One raw value and where it was written."""

    option: Option
    raw: object
    source: str


def load_config(
    path: str | None = None,
    *,
    env: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
) -> NodeConfig:
    """The validated configuration.

    `path`: a YAML file; None is no file. `env`: defaults to the process's environment.
    `overrides`: values by dotted key (`broker.nodeId`), as flags give them; None values are
    left out. Raises `ConfigError` with all problems.
    """
    problems: list[str] = []
    warnings: list[str] = []
    settings = [
        *_from_file(path, problems),
        *_from_environment(os.environ if env is None else env, problems, warnings),
        *_from_overrides(overrides or {}, problems),
    ]
    values: dict[str, object] = {}
    for setting in settings:
        try:
            values[setting.option.key] = setting.option.read(setting.raw)
        except ValueError as error:
            problems.append(f"{setting.source}: {setting.option.key} {error}")
            continue
        if not setting.option.effect:
            warnings.append(f"{setting.source}: {setting.option.key} has no effect yet")
    config: NodeConfig = _build(NodeConfig, values)
    config = _with_secret(as_pod(config), problems)
    problems += _contradictions(config)
    if problems:
        raise ConfigError(problems)
    if config.others and not config.peer_address:
        warnings.append("cluster.advertise is not set: nodes that join later can't dial this one")
    if config.auth.enabled and not config.http.tls.enabled and config.http.host != LOOPBACK:
        warnings.append("auth.enabled without tls.enabled: API keys cross the network in the clear")
    return dataclasses.replace(config, warnings=tuple(warnings))


def options(part: type[Any] = NodeConfig) -> Iterator[tuple[Option, Any]]:
    """Every option with its default, in the order of the dataclasses."""
    for item in dataclasses.fields(part):
        if "option" in item.metadata:
            factory: Any = item.default_factory
            missing = item.default is dataclasses.MISSING
            yield item.metadata["option"], factory() if missing else item.default
        elif dataclasses.is_dataclass(item.default_factory):
            yield from options(item.default_factory)


def _build(part: type[Any], values: Mapping[str, object]) -> Any:
    arguments: dict[str, object] = {}
    for item in dataclasses.fields(part):
        if "option" in item.metadata:
            key = item.metadata["option"].key
            if key in values:
                arguments[item.name] = values[key]
        elif dataclasses.is_dataclass(item.default_factory):
            arguments[item.name] = _build(item.default_factory, values)
    return part(**arguments)


def _from_file(path: str | None, problems: list[str]) -> list[_Setting]:
    if path is None:
        return []
    try:
        content = Path(path).read_bytes()
        if len(content) > FILE_BYTES_MAX:
            raise ValueError(f"larger than {FILE_BYTES_MAX} bytes")
        tree = yaml.safe_load(content)
    except OSError as error:
        problems.append(f"{path}: can't be read: {error.strerror or error}")
        return []
    except (ValueError, yaml.YAMLError) as error:
        problems.append(f"{path}: can't be read: {error}")
        return []
    if tree is None:
        return []
    if not isinstance(tree, dict):
        problems.append(f"{path}: must be a mapping at the top")
        return []
    known = {described.key: described for described, _ in options()}
    leaves = frozenset(known)
    found: list[_Setting] = []
    for key, raw in flatten(tree, leaves).items():
        if key in known:
            found.append(_Setting(known[key], raw, path))
        else:
            problems.append(f"{path}: unknown key {key}{_nearest(key, known)}")
    return found


def _from_environment(
    env: Mapping[str, str], problems: list[str], warnings: list[str]
) -> list[_Setting]:
    known = {described.env: described for described, _ in options()}
    found: list[_Setting] = []
    for name in sorted(env):
        if name in known:
            if env[name] != "":
                found.append(_Setting(known[name], env[name], f"environment {name}"))
        elif not name.startswith("GOQUEUE_"):
            continue
        elif name in _WITHOUT_EFFECT:
            warnings.append(f"environment {name}: has no effect: {_WITHOUT_EFFECT[name]}")
        elif not _NOT_A_NODES.fullmatch(name):
            problems.append(f"environment: unknown variable {name}{_nearest(name, known)}")
    return found


def _from_overrides(overrides: Mapping[str, object], problems: list[str]) -> list[_Setting]:
    known = {described.key: described for described, _ in options()}
    found: list[_Setting] = []
    for key, raw in overrides.items():
        if raw is None:
            continue
        if key in known:
            found.append(_Setting(known[key], raw, "flag"))
        else:
            problems.append(f"flag: unknown key {key}{_nearest(key, known)}")
    return found


def _nearest(name: str, known: Mapping[str, Option]) -> str:
    import difflib  # only needed to explain a mistake

    close = difflib.get_close_matches(name, known, n=1)
    return f" (is it {close[0]}?)" if close else ""


def _with_secret(config: NodeConfig, problems: list[str]) -> NodeConfig:
    path = config.cluster.secret_file
    if not path:
        return config
    if config.cluster.secret:
        problems.append("cluster.secret and cluster.secretFile are both set")
        return config
    try:
        secret = Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        problems.append(f"cluster.secretFile: {path} can't be read: {error}")
        return config
    return dataclasses.replace(config, cluster=dataclasses.replace(config.cluster, secret=secret))


def _contradictions(config: NodeConfig) -> list[str]:
    """What is wrong between options that are right by themselves."""
    found: list[str] = []
    if config.raft.election_max_ms <= config.raft.election_min_ms:
        found.append("raft.electionMax must be above raft.electionMin")
    if config.raft.heartbeat_ms * 3 > config.raft.election_min_ms:
        found.append("raft.electionMin must be at least three times raft.heartbeat")
    if config.others and not config.cluster.secret and not config.cluster.tls.enabled:
        found.append("cluster.secret is needed with cluster.peers (or cluster.tls.enabled)")
    if config.cluster.secret and len(config.cluster.secret) < 8:
        found.append("cluster.secret must have at least 8 characters")
    if config.cluster.advertise:
        try:
            peers(f"{config.node_id}={config.cluster.advertise}")
        except ValueError as error:
            found.append(f"cluster.advertise {error}")
    found += pod_problems(config)
    for prefix, tls in (("tls", config.http.tls), ("cluster.tls", config.cluster.tls)):
        if tls.enabled and not (tls.cert_file and tls.key_file):
            found.append(f"{prefix}.enabled needs {prefix}.certFile and {prefix}.keyFile")
    if config.cluster.tls.enabled and not config.cluster.tls.ca_file:
        found.append("cluster.tls.enabled needs cluster.tls.caFile")
    return found
