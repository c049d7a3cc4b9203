"""Answers to a publish over HTTP/2, as publishers judge them."""

from __future__ import annotations

import json

from tests.protocols.client import Told

CREATED = 201


def note_answer(told: Told, number: int, status: int, body: bytes, message_id: str) -> None:
    """What this answer says of a line that was published."""
    if status == CREATED:
        told.stored[number] += 1
        _, partition, offset = message_id.rsplit(":", 2)
        told.places[number] = (int(partition), int(offset))
        return
    try:
        error = json.loads(body)
    except ValueError:
        told.wrong.append(f"publishing was answered with {status} and {body[:200]!r}")
        told.unknown[number] += 1
        return
    told.refused[error["code"]] += 1
    if error["outcome"] != "none":
        told.unknown[number] += 1
    elif not error["retriable"]:
        told.wrong.append(f"publishing was answered with: {error}")
