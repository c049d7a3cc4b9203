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
        self.certificate_reloads = of.counter(
            "goqueue_certificate_reloads_total",
            "New certificates found on disk: taken, or refused because the files were not usable",
            (*DOOR, "result"),
            told=Teller.NODE,
            moves=Moves.CHANGE,
        )
