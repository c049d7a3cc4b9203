"""What nodes stand on: their certificates, and the Kubernetes that they are pods of.

A node without certificates tells nothing of them: `goqueue_up` stands in for it, so that the figure
has a value.
"""

from __future__ import annotations

from monitoring.alerts.model import Group, Severity, alert

NO_CERTIFICATE_DAYS = 36500
DAYS_LEFT = (
    f"min by (@in, instance, door)\n"
    f"(goqueue_certificate_days_left or {NO_CERTIFICATE_DAYS} * goqueue_up)"
)
_ENDS = (
    "Whoever checks it connects no more from then on: clients where it is the client port's, the"
    " other nodes where it is the peer link's."
)

GROUP = Group(
    "goqueue.deployment",
    (
        alert(
            "GoQueueCertificateExpires",
            Severity.warning,
            "1h",
            DAYS_LEFT,
            "< 14",
            "A certificate of {{ $labels.instance }} ends in less than two weeks",
            "That of the door `{{ $labels.door }}` has {{ $value | humanize }} days left. " + _ENDS,
        ),
        alert(
            "GoQueueCertificateExpiresSoon",
            Severity.critical,
            "10m",
            DAYS_LEFT,
            "< 3",
            "A certificate of {{ $labels.instance }} ends in less than three days",
            "That of the door `{{ $labels.door }}` has {{ $value | humanize }} days left. " + _ENDS,
        ),
        alert(
            "GoQueueKubernetesUnreachable",
            Severity.warning,
            "10m",
            "min by (@in, instance) (goqueue_kubernetes_api_up)",
            "< 1",
            "{{ $labels.instance }} does not reach the Kubernetes API",
            "It serves all the same. But its labels and its readiness gate may be out of date, and"
            " it does not see that replicas are to come or go.",
        ),
        alert(
            "GoQueueDrainRefused",
            Severity.warning,
            "5m",
            "max by (@in) (goqueue_kubernetes_drains_refused)",
            "> 0",
            "Pods are to go and can't be drained",
            "{{ $value }} pods hold replicas that the others can't take over. A pod that goes all"
            " the same waits until its grace period ends.",
            still="nobody scales the cluster down",
        ),
    ),
)
