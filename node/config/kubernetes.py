"""What a node is told of the pod that it runs in."""

from __future__ import annotations

from dataclasses import dataclass

from node.config.option import duration_ms, flag, integer, option, text


@dataclass(frozen=True, slots=True)
class KubernetesConfig:
    """A node that is a pod of a StatefulSet; the chart sets all of it."""

    enabled: bool = option(
        False,
        key="kubernetes.enabled",
        parse=flag,
        why="only a pod has a Kubernetes API to ask; needs the extra `kubernetes`",
    )
    statefulset: str = option(
        "",
        key="kubernetes.statefulset",
        parse=text,
        why="whose replicas are the nodes; empty: the pod's name without its ordinal",
    )
    service: str = option(
        "",
        key="kubernetes.service",
        parse=text,
        why="the headless Service that gives every pod a name; needed",
    )
    pod: str = option(
        "", key="kubernetes.pod", env="POD_NAME", parse=text, why="by the downward API; needed"
    )
    namespace: str = option(
        "",
        key="kubernetes.namespace",
        env="POD_NAMESPACE",
        parse=text,
        why="by the downward API; needed",
    )
    machine: str = option(
        "",
        key="kubernetes.machine",
        env="NODE_NAME",
        parse=text,
        why="the Kubernetes node, whose label tells the zone; empty: `broker.zone` alone does",
    )
    api_host: str = option(
        "",
        key="kubernetes.apiHost",
        env="KUBERNETES_SERVICE_HOST",
        parse=text,
        why="Kubernetes tells every pod",
    )
    api_port: int = option(
        443,
        key="kubernetes.apiPort",
        env="KUBERNETES_SERVICE_PORT",
        parse=integer,
        low=1,
        high=65535,
        why="Kubernetes tells every pod",
    )
    account: str = option(
        "/var/run/secrets/kubernetes.io/serviceaccount",
        key="kubernetes.account",
        parse=text,
        why="where the pod's token and the API's authority are mounted; a rotated token is read",
    )
    request_timeout_ms: int = option(
        5_000,
        key="kubernetes.requestTimeout",
        parse=duration_ms,
        unit="ms",
        low=100,
        why="nothing that serves waits for the API; what asks it tries again",
    )
    label_interval_ms: int = option(
        2_000,
        key="kubernetes.labelInterval",
        parse=duration_ms,
        unit="ms",
        low=100,
        why="the pod's labels change at most so often, however often leaders do",
    )
    stop_delay_ms: int = option(
        5_000,
        key="kubernetes.stopDelay",
        parse=duration_ms,
        unit="ms",
        low=0,
        why="a pod that stops serves at least so long, until Services send it nothing more",
    )
