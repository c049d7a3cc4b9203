"""What is to be done, as messages carry it: calls of tasks, one after the other or side by side.

A message's value holds the arguments of one call, and its headers the rest: which task and which
version of its arguments, the steps that follow it, and which part of an `all_of` its end is.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from goqueue.models.messages import Message
from goqueue.models.options import Priority
from goqueue.wire.errors import BadRequest
from goqueue.wire.unreadable import UNREADABLE

TASK = "goqueue-task"
VERSION = "goqueue-task-version"
THEN = "goqueue-task-then"
PART = "goqueue-task-part"
KEEP = "goqueue-task-keep"
PARTS_MAX = 200
"""Of one `all_of`: the end of each looks at those of all."""
Value = msgspec.Raw


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """One call; or, with `parts`, several chains side by side. `results` names the arguments that
    the step before gives its result to."""

    task: str = ""
    version: int = 1
    queue: str = ""
    priority: Priority = "normal"
    args: dict[str, Value] = {}
    results: list[str] = []
    dedup_id: str | None = None
    parts: list[list[Step]] = []

    def given(self, result: Value) -> Step:
        """With the result of the step before."""
        if not self.results:
            return self
        args = {**self.args, **dict.fromkeys(self.results, result)}
        return msgspec.structs.replace(self, args=args, results=[])


class Part(msgspec.Struct, frozen=True):
    """Whose end this chain's is a part of: the `number`th, from 0, of so many, of the join `id`."""

    id: str
    number: int
    of: int


class Keep(msgspec.Struct, frozen=True):
    """Under which name the result of a chain is kept, and for how long."""

    id: str
    ttl_ms: int


class Rest(msgspec.Struct, frozen=True, omit_defaults=True):
    """What comes after a step."""

    then: list[Step] = []
    part: Part | None = None
    keep: Keep | None = None


class Envelope(msgspec.Struct, frozen=True):
    """What the headers of a task's message say."""

    task: str
    version: int
    rest: Rest


def headers_of(step: Step, rest: Rest) -> dict[str, bytes | str]:
    """The headers of a message that carries this step."""
    found: dict[str, bytes | str] = {TASK: step.task, VERSION: str(step.version)}
    if rest.then:
        found[THEN] = msgspec.json.encode(rest.then)
    if rest.part is not None:
        found[PART] = msgspec.json.encode(rest.part)
    if rest.keep is not None:
        found[KEEP] = msgspec.json.encode(rest.keep)
    return found


def envelope_of(message: Message) -> Envelope:
    """Raises BadRequest on a message that is no task."""
    headers: Mapping[str, bytes] = dict(message.headers)
    try:
        task, version = headers[TASK].decode(), int(headers.get(VERSION, b"1"))
        then = msgspec.json.decode(headers.get(THEN, b"[]"), type=list[Step])
        part = msgspec.json.decode(headers.get(PART, b"null"), type=Part | None)
        keep = msgspec.json.decode(headers.get(KEEP, b"null"), type=Keep | None)
    except KeyError:
        raise BadRequest(f"no task: a message without the header {TASK}") from None
    except (ValueError, *UNREADABLE) as error:
        raise BadRequest(f"no task that is understood: {error}") from None
    return Envelope(task, version, Rest(then, part, keep))
