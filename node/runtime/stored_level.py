"""The finished level in the data directory: asked before anything in it is touched, kept from then
on."""

from __future__ import annotations

from functools import partial

from log.disk.files import Disk
from log.levels import Levels, outdated
from log.store.level_file import LevelFile
from node.runtime.version import VERSION


class OtherLevel(Exception):
    """The data directory is of a cluster whose finished level this version does not speak."""


def stored_levels(disk: Disk, root: str) -> Levels:
    """What this version speaks, and what the directory knows; kept there from now on. Raises
    OtherLevel, OSError; nothing was written then."""
    file = LevelFile(disk, root)
    levels = Levels(known=file.read(), keep=partial(file.write, version=VERSION.version))
    if levels.known and not levels.spoken.speaks(levels.known):
        raise OtherLevel(outdated(levels.spoken, levels.known))
    return levels
