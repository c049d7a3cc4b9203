"""Loaded by schemathesis: half of all requests name what exists, so that they get past the 404."""

from __future__ import annotations

import random
from typing import Any

import schemathesis

from goqueue.wire.encoding import Record, encode_batch

KNOWN: dict[str, list[Any]] = {
    "topic": ["fuzzed", "other", "fuzzed.dlq"],
    "group": ["workers", "keyed"],
    "partition": [0, 1],
    "offset": [0, 1, 5],
    "schedule": ["nightly"],
    "broker": ["node-1"],
    "id": ["fuzzed:0:0", "fuzzed:1:2"],
    "reassignment": [1],
    "producer": [1],
    "job": [1],
}
BATCH = encode_batch([Record(value=b"fuzzed", key=b"k")] * 3)
_rng = random.Random(5)


@schemathesis.hook
def map_path_parameters(context: object, path_parameters: Any) -> Any:
    for name, known in KNOWN.items():
        if path_parameters and name in path_parameters and _rng.random() < 0.5:
            path_parameters[name] = _rng.choice(known)
    return path_parameters


@schemathesis.hook
def map_query(context: Any, query: Any) -> Any:
    """A tail goes on for as long as it is read, unless it is told how long to wait."""
    if context.operation.path.endswith("/tail"):
        return {**(query or {}), "wait": "1ms"}
    return query


@schemathesis.serializer("application/vnd.goqueue.batch")
def serialize_batch(context: object, value: Any) -> bytes:
    """A sound batch, now and then with other bytes in it or none."""
    cut = _rng.randrange(len(BATCH))
    return _rng.choice((BATCH, BATCH, BATCH[:cut], BATCH[:cut] + b"\xff" + BATCH[cut + 1 :], b""))
