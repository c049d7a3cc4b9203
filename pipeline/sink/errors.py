"""What a write fails with: one sentence that names the option, the column or the row."""

from __future__ import annotations


class SinkError(Exception):
    """The write can't go on as it is; repeating it brings the same."""
