"""The sink's options, read and judged on the driver before a row is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from goqueue.wire.compression import Codec
from goqueue.wire.layout import DEFAULT_LIMITS, UINT32_MAX
from pipeline.broker_access import Access
from pipeline.options import ACCESS_OPTIONS, OptionError, Options

BATCH_ROWS = 10_000
BATCH_BYTES = 1 << 20
BATCH_BYTES_MAX = 8 << 20
"""Half of what servers take in one request, with room for what is beside the values."""
DELIVERY_TIMEOUT_S = 120.0
"""Longer than failovers, restarts and full disks that somebody looks after take."""
WRITE_ID_CHARACTERS_MAX = 249
PARTS_MAX = 100_000

_OF_BOTH = (
    "topic",
    "compression",
    "batchRows",
    "batchBytes",
    "deliveryTimeout",
    "failOnChangedRows",
    "sparkPartitions",
)
_OF_BATCH = (*ACCESS_OPTIONS, *_OF_BOTH, "writeId", "writeEpoch", "path")
_OF_STREAM = (*ACCESS_OPTIONS, *_OF_BOTH, "checkpointLocation", "path", "queryName")


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """What tasks are told; plain data."""

    access: Access
    topic: str | None
    """For all rows, whatever their column says; None where the column decides."""
    compression: str
    batch_rows: int
    batch_bytes: int
    delivery_timeout_s: float
    """How long one batch is tried."""
    fails_on_changed_rows: bool
    write_id: str | None = None
    write_epoch: int = 0
    parts: int | None = None
    """How many Spark partitions are written, where that is told."""

    @classmethod
    def of(cls, given: Mapping[str, str], *, streaming: bool) -> SinkOptions:
        """Raises OptionError."""
        options = Options(given)
        options.refuse_others(_OF_STREAM if streaming else _OF_BATCH)
        codecs = [codec.name.lower() for codec in Codec]
        write_id = options.text("writeId")
        if write_id is not None and len(write_id) > WRITE_ID_CHARACTERS_MAX:
            raise OptionError(f"writeId: it has more than {WRITE_ID_CHARACTERS_MAX} characters")
        if "writeEpoch" in options and write_id is None:
            raise OptionError("writeEpoch: it numbers the runs of a writeId, and there is none")
        timeout_s = options.span_s("deliveryTimeout", DELIVERY_TIMEOUT_S)
        if timeout_s <= 0:
            raise OptionError("deliveryTimeout: 0 leaves no time for an answer")
        rows_max, bytes_max = DEFAULT_LIMITS.records_max, BATCH_BYTES_MAX
        return cls(
            options.access(),
            options.text("topic"),
            options.choice("compression", codecs, "none"),
            options.number("batchRows", least=1, most=rows_max) or BATCH_ROWS,
            options.number("batchBytes", least=1024, most=bytes_max) or BATCH_BYTES,
            timeout_s,
            options.flag("failOnChangedRows", True),
            write_id,
            options.number("writeEpoch", most=UINT32_MAX) or 0,
            options.number("sparkPartitions", least=1, most=PARTS_MAX),
        )
