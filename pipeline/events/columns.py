"""Events as Arrow columns, made of the answer's columns without a loop over rows.

The columns are the archive's. `message_id`, `lane` and `key` are told by PUBLISHED; (topic,
partition, offset) joins an event with others and with its message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from typing import Final

import numpy as np
import pyarrow as pa

from goqueue.archive.schema import EVENT_COLUMNS
from goqueue.wire.events import EventColumns, EventsPage
from pipeline.options import OptionError


def check(fields: Iterable[tuple[str, str]]) -> None:
    """Raises OptionError where a schema asks for what there is not."""
    for name, type_ in fields:
        if EVENT_COLUMNS.get(name) != type_:
            raise OptionError(f"schema: there is no column {name} {type_} in goqueue.events")


def record_batch(page: EventsPage, schema: pa.Schema) -> pa.RecordBatch:
    """A page's events in columns of this schema."""
    events = page.events
    arrays = [BUILDERS[field.name](page, events, field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _same(
    pick: Callable[[EventsPage], str | int],
) -> Callable[[EventsPage, EventColumns, pa.DataType], pa.Array]:
    def column(page: EventsPage, events: EventColumns, type_: pa.DataType) -> pa.Array:
        return pa.repeat(pa.scalar(pick(page), type_), len(events.index))

    return column


def _given(name: str) -> Callable[[EventsPage, EventColumns, pa.DataType], pa.Array]:
    def column(_page: EventsPage, events: EventColumns, type_: pa.DataType) -> pa.Array:
        return pa.array(getattr(events, name), type_)

    return column


def _timestamp(_page: EventsPage, events: EventColumns, type_: pa.DataType) -> pa.Array:
    return pa.array(np.array(events.timestamp_ms, np.int64) * 1000, pa.int64()).view(type_)


def _attributes(_page: EventsPage, events: EventColumns, type_: pa.DataType) -> pa.Array:
    told = [what or _NOTHING for what in events.attributes]
    offsets = np.zeros(len(told) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, told), np.int32, len(told)), out=offsets[1:])
    names = pa.array(list(chain.from_iterable(told)), type_.key_type)
    texts = pa.array(list(chain.from_iterable(map(dict.values, told))), type_.item_type)
    return pa.MapArray.from_arrays(pa.array(offsets), names, texts, type=type_)


_NOTHING: dict[str, str] = {}
BUILDERS: Final[dict[str, Callable[[EventsPage, EventColumns, pa.DataType], pa.Array]]] = {
    "topic": _same(lambda page: page.topic),
    "partition": _same(lambda page: page.partition),
    "timestamp": _timestamp,
    "attributes": _attributes,
    **{
        name: _given(name)
        for name in (
            "offset",
            "message_id",
            "index",
            "seq",
            "event_type",
            "group",
            "consumer",
            "lane",
            "attempt",
            "reason",
            "key",
        )
    },
}
"""How each column is made."""
