"""Messages to send: what one read of a partition gave, encoded once for all who are shown it."""

from __future__ import annotations

from dataclasses import dataclass

from node.api.records import Slice
from node.http.budget.memory import Reserved
from node.http.budget.slices import SLICE_BYTES, pause
from node.http.messages.render import MessageView, Room, cut_slice, render
from node.http.text.pieces import LongText, Pieces, encode

READ_BYTES = 256 * 1024
"""Of stored batches that one read asks for; at least one batch is always read."""
ROWS_MAX = 5_000
"""Messages of one portion; a larger batch is read again for the rest."""
PORTION_BYTES = 1024 * 1024
"""Of a portion's messages, as JSON; its first one always has room."""
LINE_BYTES = 200
"""What a message is taken to hold beside its texts."""


class Line:
    """One message. Its JSON is made when somebody wants it for the first time."""

    __slots__ = ("_data", "view")

    def __init__(self, view: MessageView) -> None:
        self.view = view
        self._data: bytes | None = None

    @property
    def is_long(self) -> bool:
        """Whether its JSON is made a slice at a time, for each reader anew."""
        return isinstance(self.view.value, LongText)

    @property
    def data(self) -> bytes:
        """JSON, without a line's end in it; not of a long one."""
        if self._data is None:
            self._data = encode(self.view)
        return self._data

    async def parts(self) -> list[bytes | memoryview | LongText]:
        """The JSON of a long one. Others run while it is measured."""
        pieces = Pieces()
        await pieces.add(self.view)
        return pieces.finish()


@dataclass(slots=True)
class Portion:
    """Neighbours of one partition: all messages from `first` up to `following`, where reading goes
    on. Offsets between them that hold nothing were compacted away."""

    first: int
    following: int
    lines: list[Line]
    held_bytes: int
    """About what the lines hold, their JSON included."""


async def portion_of(found: Slice, partition: int, offset: int, held: Reserved | None) -> Portion:
    """The messages of a slice from `offset` on, as many as a portion takes. What they hold is
    charged to `held`. Raises OverBudget."""
    cuts, following = cut_slice(found, max(offset, found.log_start), ROWS_MAX)
    room, lines, weight = Room(PORTION_BYTES, held), list[Line](), 0
    for cut in cuts:
        count = 0
        for chunk in await render(cut, room):
            count += len(chunk.rows)
            is_long = chunk.weight > SLICE_BYTES  # its JSON is not kept
            weight += chunk.weight * (1 if is_long else 2) + LINE_BYTES * len(chunk.rows)
            for view in chunk.rows:
                view.partition = partition
                lines.append(Line(view))
            if chunk.weight > SLICE_BYTES // 2:
                await pause()
        if count < cut.last - cut.first:
            following = cut.stored.base_offset + cut.first + count
            break
    return Portion(offset, max(offset, following), lines, weight)
