"""Who may come in: API keys."""

# ruff: noqa: RUF009 - `option` is `dataclasses.field` with a description

from __future__ import annotations

from dataclasses import dataclass

from node.config.option import duration_ms, flag, networks, option, text


@dataclass(frozen=True, slots=True)
class AuthConfig:
    """API keys of the client port; those without effect are GoQueue's."""

    enabled: bool = option(
        False,
        key="auth.enabled",
        parse=flag,
        why="a laptop has nobody to keep out; when on, whatever has no key is refused but probes",
    )
    insecure_open: bool = option(
        False,
        key="auth.insecureOpen",
        parse=flag,
        why="without auth.enabled a node listens on loopback only, unless this says that whoever"
        " reaches it may do everything; tls.caFile, which asks clients for certificates, will do"
        " too; a data directory that was served so before goes on, with a warning",
    )
    admin_key_file: str = option(
        "",
        key="auth.adminKeyFile",
        parse=text,
        why="a file that holds id.secret, 16 characters or more: the first admin key, made where no"
        " live key is an admin's of every topic; once revoked, the same id is not made again",
    )
    metrics_anonymous: bool = option(
        False,
        key="auth.metricsAnonymous",
        parse=flag,
        why="/metrics names topics and groups, so a scraper has a key of role readonly; true where"
        " the network lets nobody else come near",
    )
    stale_ms: int = option(
        3_600_000,
        key="auth.staleAfter",
        parse=duration_ms,
        unit="ms",
        low=1000,
        why="a node that has not heard of the cluster group's leader for so long can't know which"
        " keys were revoked, and refuses all; until then it goes on with those it knows",
    )
    allow_health: bool = option(
        True,
        key="auth.allowHealth",
        parse=flag,
        effect=False,
        why="GoQueue's; probes need no key here",
    )
    root_key: str = option(
        "",
        key="auth.rootKey",
        env="GOQUEUE_API_ROOT_KEY",
        parse=text,
        effect=False,
        why="GoQueue's; the first key comes from auth.adminKeyFile, which no environment shows",
    )
    acl_enabled: bool = option(
        False,
        key="auth.aclEnabled",
        env="GOQUEUE_ACL_ENABLED",
        parse=flag,
        effect=False,
        why="GoQueue's; keys have roles and prefixes whenever auth.enabled is on",
    )
    trusted_proxies: list[str] = option(
        [],
        key="auth.trustedProxies",
        env="GOQUEUE_TRUSTED_PROXIES",
        parse=networks,
        why="networks of proxies whose X-Forwarded-For says where a request comes from, for the"
        " limit of failed authentications and the audit log, and whose X-Forwarded-Proto says"
        " whether it came by TLS; none: the connection counts",
    )
