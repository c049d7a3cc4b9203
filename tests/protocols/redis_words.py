"""Errors over Redis' protocol, as publishers judge them."""

from __future__ import annotations

from tests.protocols.client import Told

_IN_DOUBT = "(outcome_unknown)"


def note_failure(told: Told, text: str, numbers: list[int]) -> None:
    """What this error says of lines that were published: that they may be stored, or are not."""
    if text.endswith(_IN_DOUBT):
        told.unknown.update(numbers)
    elif not text.startswith("TRYAGAIN"):
        told.wrong.append(f"publishing was answered with: {text[:300]}")
    told.refused[text.rpartition("(")[2].rstrip(")")[:60]] += 1
