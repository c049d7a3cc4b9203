"""The names of a StatefulSet's pods: the ordinal is the node, and the headless Service its host."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from goqueue.wire.types import NodeId
from node.config.node import BrokerConfig, NodeConfig
from node.config.option import Address

ORDINALS_MAX = 32
"""As many brokers as a cluster may have."""
STOP_SOCKET = "pod-stop.sock"
"""In the data directory: where a node listens for its pod's preStop hook."""
RECORD_KEY = "cluster-id"
"""In the ConfigMap: the id of the cluster that the volumes belong to, 16 hexadecimal digits."""

_POD = re.compile(r"(.+)-(\d{1,9})")


@dataclass(frozen=True, slots=True)
class PodNames:
    """Names made from those of the set, its Service and its namespace; `port` is the peers'."""

    statefulset: str
    service: str
    namespace: str
    port: int

    def node(self, ordinal: int) -> NodeId:
        return NodeId(f"{self.statefulset}-{ordinal}")

    def ordinal(self, node: str) -> int | None:
        """None for what is no pod of this set."""
        found = _POD.fullmatch(node)
        if found is None or found[1] != self.statefulset or node != self.node(int(found[2])):
            return None
        return int(found[2])

    @property
    def cluster_record(self) -> str:
        """The ConfigMap that remembers the cluster's id; the chart makes the same name."""
        return f"{self.statefulset}-cluster-id"

    def host(self, node: str) -> str:
        return f"{node}.{self.service}.{self.namespace}.svc"

    def address(self, node: str) -> Address:
        return self.host(node), self.port


def names_of(config: NodeConfig) -> PodNames:
    """Those of the set that this pod belongs to."""
    pod = config.kubernetes
    found = _POD.fullmatch(pod.pod)
    statefulset = pod.statefulset or (found[1] if found else pod.pod)
    return PodNames(statefulset, pod.service, pod.namespace, config.cluster.port)


def as_pod(config: NodeConfig) -> NodeConfig:
    """Where the node is a pod: its name and addresses are the pod's, unless they are told."""
    if not config.kubernetes.enabled or not config.kubernetes.pod:
        return config
    broker, cluster, names = config.broker, config.cluster, names_of(config)
    if broker.node_id == BrokerConfig().node_id:
        broker = replace(broker, node_id=config.kubernetes.pod)
    host, port = names.address(config.kubernetes.pod)
    url = f"{config.http_scheme}://{host}:{config.http.port}"
    cluster = replace(
        cluster,
        advertise=cluster.advertise or f"{host}:{port}",
        client_advertise=cluster.client_advertise or url,
    )
    return replace(config, broker=broker, cluster=cluster)


def pod_problems(config: NodeConfig) -> list[str]:
    """What is missing for a node to be a pod."""
    pod = config.kubernetes
    if not pod.enabled:
        return []
    needed = {
        "kubernetes.pod (POD_NAME)": pod.pod,
        "kubernetes.namespace (POD_NAMESPACE)": pod.namespace,
        "kubernetes.service": pod.service,
        "kubernetes.apiHost (KUBERNETES_SERVICE_HOST)": pod.api_host,
    }
    found = [f"kubernetes.enabled needs {name}" for name, value in needed.items() if not value]
    if pod.pod and names_of(config).ordinal(pod.pod) is None:
        found.append(f"kubernetes.pod {pod.pod!r} is no pod of {names_of(config).statefulset!r}")
    elif pod.pod and config.node_id != pod.pod:
        found.append(f"broker.nodeId {config.node_id!r} must be the pod's name, {pod.pod!r}")
    if not config.takes_peers:
        found.append("kubernetes.enabled needs cluster.secret (or cluster.tls.enabled)")
    return found
