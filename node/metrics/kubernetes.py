"""A node in a pod: whether the Kubernetes API answers, and what it said last."""

from __future__ import annotations

from node.metrics.declare import Declarations
from node.metrics.meaning import Moves, Teller


class KubernetesMetrics:
    """Nothing is told where a node is no pod."""

    def __init__(self, of: Declarations) -> None:
        node, change = Teller.NODE, Moves.CHANGE
        self.api_up = of.gauge(
            "goqueue_kubernetes_api_up",
            "0 where the Kubernetes API did not answer this pod's last request, or refused the "
            "pod's account, else 1, as where the node is no pod; nothing that serves waits for it",
            told=node,
            moves=change,
        )
        self.requests = of.counter(
            "goqueue_kubernetes_requests_total",
            "Requests to the Kubernetes API and events of watches: ok, conflict, expired, missing, "
            "refused, failed, unreachable",
            ("outcome",),
            told=node,
            moves=change,
        )
        self.watch_age = of.gauge(
            "goqueue_kubernetes_watch_age_seconds",
            "Since when this pod has not heard of its StatefulSet",
            told=node,
            moves=change,
        )
        self.replicas_wanted = of.gauge(
            "goqueue_kubernetes_replicas_wanted",
            "Replicas of the StatefulSet as this pod saw them last; -1 while it saw none",
            told=Teller.VIEW,
            moves=change,
        )
        self.drains_refused = of.gauge(
            "goqueue_kubernetes_drains_refused",
            "Pods that are to go and can't be drained: the others could not hold all replicas",
            told=Teller.CONTROLLER,
            moves=Moves.FAILURE,
        )
        self.in_sync = of.gauge(
            "goqueue_kubernetes_in_sync",
            "1 where this pod's readiness gate goqueue.io/in-sync is open",
            told=node,
            moves=change,
        )
