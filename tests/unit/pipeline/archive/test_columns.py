from __future__ import annotations

from goqueue.archive.schema import MESSAGE_COLUMNS
from pipeline.source import columns


def test_archived_messages_have_the_columns_of_the_source() -> None:
    assert list(MESSAGE_COLUMNS.items()) == [*columns.DEFAULT.items(), *columns.EXTRA.items()]
