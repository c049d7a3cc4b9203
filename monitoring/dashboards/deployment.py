"""What nodes stand on, as a row of the page for whoever runs them. Where a node has no certificate,
`goqueue_up` stands in."""

from __future__ import annotations

from monitoring.alerts.deployment import NO_CERTIFICATE_DAYS
from monitoring.dashboards.model import Kind, Panel, Query, Row, Unit

ROW = Row(
    "Certificates and Kubernetes",
    (
        Panel(
            "Days left of certificates",
            f"By node and door; {NO_CERTIFICATE_DAYS} where there is none. Normal: it falls by one"
            " a day, and is renewed above 14.",
            (
                Query(
                    "min by (instance, door) (goqueue_certificate_days_left{@all,@node}"
                    f" or {NO_CERTIFICATE_DAYS} * goqueue_up{{@all,@node}})",
                    "{{instance}} {{door}}",
                ),
            ),
            Unit.number,
            Kind.table,
            width=8,
            height=6,
            warn=14,
            bad=3,
            falls=True,
            alerts=("GoQueueCertificateExpires", "GoQueueCertificateExpiresSoon"),
        ),
        Panel(
            "Kubernetes API answers",
            "1 where it answered the node last, or the node is no pod. Normal: 1; nothing that"
            " serves waits for it.",
            (
                Query(
                    "min by (instance) (goqueue_kubernetes_api_up{@all,@node})",
                    "{{instance}}",
                ),
            ),
            Unit.number,
            width=8,
            height=6,
            alerts=("GoQueueKubernetesUnreachable",),
        ),
        Panel(
            "Drains refused",
            "Pods that are to go and hold what the others can't take over. Normal: 0.",
            (
                Query(
                    "max(goqueue_kubernetes_drains_refused{@all})",
                    "refused",
                ),
            ),
            Unit.number,
            width=8,
            height=6,
            warn=1,
            alerts=("GoQueueDrainRefused",),
            still="nobody scales the cluster down",
        ),
    ),
)
