"""The doors of a node: certificates, and who was let in or not."""

from __future__ import annotations

from node.metrics.declare import Declarations
from node.metrics.meaning import Moves, Teller

DOOR = ("door",)


class DoorMetrics:
    """Of the client port (`client`) and of the peer link (`peer`)."""

    def __init__(self, of: Declarations) -> None:
        self.certificate_days_left = of.gauge(
            "goqueue_certificate_days_left",
            "Days until the certificate in use ends; negative after that",
            DOOR,
            told=Teller.NODE,
            moves=Moves.CHANGE,
        )
        self.authentications = of.counter(
            "goqueue_authentications_total",
            "Requests that need an API key, by what became of it",
            ("result",),
            told=Teller.FRONT,
            moves=Moves.LOCKED,
        )
        self.denials = of.counter(
            "goqueue_authorization_denials_total",
            "Requests whose key was proved and may not do that, by what it lacks: role or scope",
            ("missing",),
            told=Teller.FRONT,
            moves=Moves.LOCKED,
        )
        self.audit_records = of.counter(
            "goqueue_audit_records_total",
            "Records stored in the audit log",
            told=Teller.FRONT,
            moves=Moves.LOCKED,
        )
        self.audit_lost = of.counter(
            "goqueue_audit_records_lost_total",
            "Records that found no room in the buffer of the audit log, or were left when the node"
            " stopped",
            told=Teller.FRONT,
            moves=Moves.FAILURE,
        )
        self.handshakes_failed = of.counter(
            "goqueue_peer_handshakes_failed_total",
            "Handshakes on the peer link that failed: tls, proof (another secret), malformed,"
            " refused (proven, and not let in), unfinished",
            ("failure",),
            told=Teller.NODE,
            moves=Moves.FAILURE,
        )
        self.certificate_reloads = of.counter(
            "goqueue_certificate_reloads_total",
            "New certificates found on disk: taken, or refused because the files were not usable",
            (*DOOR, "result"),
            told=Teller.NODE,
            moves=Moves.CHANGE,
        )
