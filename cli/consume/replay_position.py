"""How far a group's replay has come: a file of this user, as archived messages can't be leased.

It says for each partition what comes next. What was printed is noted a second later at the latest,
so a replay that was killed prints that second's messages again. The group's position in the log
is another one, which a replay neither reads nor moves.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import msgspec

from cli.output.errors import EXIT_USAGE, CliError

SAVED_EVERY_S = 1.0


class _Saved(msgspec.Struct):
    group: str
    topic: str
    topic_id: str
    offsets: dict[str, int]
    first: int = 0
    from_ms: int | None = None


class ReplayPosition:
    """One group's, in one topic: of this id, so that a topic made anew is read from its start."""

    def __init__(self, path: Path, group: str, topic: str, topic_id: str) -> None:
        self.path = path
        self.offsets: dict[int, int] = {}
        self.first = 0
        self.from_ms: int | None = None
        """Where partitions begin of which nothing was printed yet."""
        self._group, self._topic, self._topic_id = group, topic, topic_id
        self._saved_s = time.monotonic()

    @classmethod
    def default_path(cls, group: str, topic: str, topic_id: str) -> Path:
        """Below `$XDG_STATE_HOME`, else `~/.local/state`."""
        home = os.environ.get("XDG_STATE_HOME")
        base = Path(home) if home else Path.home() / ".local" / "state"
        return base / "goqueue" / "replays" / group / f"{topic}-{topic_id}.json"

    def load(self) -> bool:
        """Go on where the file says; False where there is none. Raises `CliError`."""
        try:
            saved = msgspec.json.decode(self.path.read_bytes(), type=_Saved)
            offsets = {int(number): offset for number, offset in saved.offsets.items()}
        except FileNotFoundError:
            return False
        except (msgspec.MsgspecError, ValueError) as error:
            raise CliError(f"{self.path}: {error}", exit_code=EXIT_USAGE) from None
        told = (saved.group, saved.topic, saved.topic_id)
        if told != (self._group, self._topic, self._topic_id):
            raise CliError(
                f"{self.path} is of group {told[0]} in {told[1]} ({told[2]})",
                hint="--position names another file; --from-beginning starts anew",
                exit_code=EXIT_USAGE,
            )
        self.offsets, self.first, self.from_ms = offsets, saved.first, saved.from_ms
        return True

    def offset(self, partition: int) -> int:
        """What comes next of a partition."""
        return self.offsets.get(partition, self.first)

    def passed(self, partition: int, offset: int) -> None:
        """This one was printed; what is in the file may be a second behind."""
        self.offsets[partition] = offset + 1

    def save_in_time(self) -> None:
        """Write the file where it is time to."""
        if time.monotonic() - self._saved_s > SAVED_EVERY_S:
            self.save()

    def save(self) -> None:
        """Write the file, whole, synced, in place of the one before."""
        offsets = {str(number): offset for number, offset in sorted(self.offsets.items())}
        saved = _Saved(self._group, self._topic, self._topic_id, offsets, self.first, self.from_ms)
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=".replay-")
        with os.fdopen(handle, "wb") as file:
            file.write(msgspec.json.encode(saved))
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(self.path)
        self._saved_s = time.monotonic()
