"""The few things that the archive asks of a filesystem, by paths relative to its destination."""

from __future__ import annotations

from typing import Protocol


class ReadableStore(Protocol):
    """A filesystem that holds an archive."""

    def names(self, folder: str) -> list[str]:
        """What lies directly in a folder, in any order; nothing where there is no such folder."""
        ...

    def read(self, path: str) -> bytes:
        """A file's bytes. Raises FileNotFoundError where there is none."""
        ...


class WritableStore(ReadableStore, Protocol):
    """A filesystem that an archive may be written to."""

    def create(self, path: str, data: bytes) -> bool:
        """Make a file with all of this content at once; False, changing nothing, where it exists.

        Of several that try at once, one gets True. Nobody ever sees a part of the content.
        """
        ...

    def remove(self, path: str) -> None:
        """Remove a file or a folder with all in it; nothing happens where there is none."""
        ...


class MemoryStore:
    """A filesystem in memory: for tests, and to try things out."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def names(self, folder: str) -> list[str]:
        below = f"{folder}/"
        return list(
            dict.fromkeys(
                path.removeprefix(below).partition("/")[0]
                for path in self.files
                if path.startswith(below)
            )
        )

    def read(self, path: str) -> bytes:
        try:
            return self.files[path]
        except KeyError:
            raise FileNotFoundError(path) from None

    def create(self, path: str, data: bytes) -> bool:
        return self.files.setdefault(path, data) is data

    def remove(self, path: str) -> None:
        for name in [name for name in self.files if f"{name}/".startswith(f"{path}/")]:
            del self.files[name]
