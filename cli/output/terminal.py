"""The one place through which the CLI writes: whatever it prints passes here.

Text of others (values, keys, headers, names, errors) may hold what a terminal obeys instead of
showing: escape sequences that write to the clipboard or clear the screen, and characters that turn
the direction of what follows or hide in it. A terminal gets those as `\x1b` or `\u202e`; pipes
and files get text as it is.
"""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, Literal, TextIO

if TYPE_CHECKING:  # what prints no style does without rich, which takes long to import
    from rich.console import Console

_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Controls, of terminals too, what turns the direction of text or hides in it, and what is no
character."""
_KEPT = "\n\t"
"""What a terminal gets of those: text of ours has lines."""


def visible(text: str) -> str:
    """Foreign text within a line of ours: it can't begin another line, nor move the cursor."""
    return _UNSEEN.sub(_escaped, text)


def hides(text: str) -> bool:
    """Whether anything in it is not seen as it is."""
    return any(found[0] not in _KEPT for found in _UNSEEN.finditer(text))


def visible_json(text: str) -> str:
    """As `visible`, of JSON, which stays the same JSON."""
    return _UNSEEN.sub(lambda found: _kept(found[0]) or _json_escaped(found[0]), text)


def shown(stream: TextIO, text: str) -> str:
    """The text as that stream gets it: visible on a terminal, where lines stay lines."""
    if not stream.isatty():
        return text
    return _UNSEEN.sub(lambda found: _kept(found[0]) or _escaped(found), text)


def write(stream: TextIO, text: str) -> None:
    stream.write(shown(stream, text))
    stream.flush()


def write_bytes(stream: TextIO, blob: bytes) -> None:
    """Bytes of messages: as they are, or on a terminal as visible text."""
    if stream.isatty():
        write(stream, blob.decode(errors="backslashreplace"))
        return
    stream.flush()
    stream.buffer.write(blob)
    stream.buffer.flush()


def write_marked(stream: TextIO, mark: tuple[str, str], text: str) -> None:
    """A line that begins with a mark, given with its style."""
    if not stream.isatty():
        write(stream, f"{mark[0]}{text}\n")
        return
    from rich.text import Text

    line = Text.assemble((shown(stream, mark[0]), mark[1]), shown(stream, text))
    plain_console(stream).print(line)


def clear(stream: TextIO) -> None:
    """An empty screen; only of a terminal."""
    stream.write("\x1b[H\x1b[2J")
    stream.flush()


def plain_console(stream: TextIO) -> Console:
    """Prints text as it is, with the styles asked for; none at all under `NO_COLOR`. What is drawn
    on it is made `visible` before."""
    from rich.console import Console

    system: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    return Console(file=stream, color_system=system, highlight=False, soft_wrap=True)


def warn(text: str) -> None:
    """`Warning: text` on standard error."""
    write_marked(sys.stderr, ("Warning: ", "bold yellow"), text)


def note(text: str) -> None:
    """A line for people that isn't part of the answer, on standard error."""
    write(sys.stderr, text + "\n")


def _kept(character: str) -> str:
    return character if character in _KEPT else ""


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def _json_escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
