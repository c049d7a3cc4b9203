"""Stories of groups and lanes: commands after `> `, what each one comes to beneath.

`python -m tests.unit.delivery.state.transcripts FILE...` writes the files anew with what is true
now.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path

from delivery.entries.ops import (
    ACK,
    EXTEND,
    LEASE_EXPIRED,
    NACK,
    NOT_FOUND,
    REJECT,
    RELEASE,
    STALE,
    CountResult,
    Delivered,
    Granted,
    Halted,
    Own,
    OwnedResult,
    Parked,
    Purged,
    Resumed,
    StaleResult,
    Unparked,
)
from goqueue.wire.layout import LANES
from tests.unit.delivery.desk import Desk

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_ACTIONS = {"ack": ACK, "nack": NACK, "reject": REJECT, "extend": EXTEND, "release": RELEASE}
_REFUSALS = {NOT_FOUND: "not in flight", LEASE_EXPIRED: "receipt expired", STALE: "stale"}
_CODES = ["cancelled", "not delayed", "", "too late"]


def duration_ms(text: str) -> int:
    """`30s` in ms."""
    digits = text.rstrip("msdh")
    return int(digits) * _UNITS_MS[text[len(digits) :] or "ms"]


def play(text: str) -> str:
    """The transcript as its commands come out now; comments and blank lines stay."""
    player = Player()
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("> "):
            lines += [line, *player.run(line[2:])]
        elif line.startswith("#") or not line.strip():
            lines.append(line)
    return "\n".join(lines) + "\n"


def _owner(found: OwnedResult | StaleResult) -> str:
    return f"{found.member or 'nobody'}'s since generation {found.generation}"


class Player:
    """A partition, its groups by name, and all receipts that were ever given."""

    def __init__(self) -> None:
        self._desk = Desk()
        self._groups: dict[str, int] = {}
        self._receipts: dict[tuple[str, int], list[int]] = {}
        """(group, offset) -> its deliveries."""

    def run(self, command: str) -> list[str]:
        """What a command prints."""
        verb, *words = shlex.split(command)
        given = dict(word.split("=", 1) for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        if verb in _ACTIONS:
            return self._settle(verb, plain, given)
        run: Callable[[list[str], dict[str, str]], list[str]] = getattr(self, f"_{verb}")
        return run(plain, given)

    def _open(self, plain: list[str], given: dict[str, str]) -> list[str]:
        number = self._groups[plain[0]] = len(self._groups) + 1
        config: dict[str, object] = {}
        for name, value in given.items():
            if name in ("ordering", "on_poison"):
                config[name] = value
            elif name in ("visibility", "backoff", "backoff_max", "lane_max_wait"):
                key = name.replace("_max", "_ms_max") if name == "backoff_max" else f"{name}_ms"
                config[key] = duration_ms(value)
            else:
                config[name] = int(value)
        self._desk.open(number, **config)
        return []

    def _publish(self, plain: list[str], given: dict[str, str]) -> list[str]:
        count = int(plain[0])
        delay, ttl, key = given.get("delay"), given.get("ttl"), given.get("key")
        offsets = self._desk.publish(
            count,
            lanes=LANES.index(given.get("lane", "normal")),
            keys=None if key is None else [key.encode()] * count,
            deliver_at_ms=None if delay is None else [duration_ms(delay)] * count,
            expires_at_ms=None if ttl is None else [duration_ms(ttl)] * count,
        )
        return [" ".join(map(str, offsets))]

    def _receive(self, plain: list[str], given: dict[str, str]) -> list[str]:
        name, limit = plain[0], int(plain[1]) if len(plain) > 1 else 1000
        visibility = given.get("visibility")
        group = self._desk.group(self._groups[name])
        op = Delivered(
            group.id,
            given.get("member", "m"),
            group.config.visibility_ms if visibility is None else duration_ms(visibility),
            group.select(limit, self._desk.now_ms),
            generation=int(given.get("generation", "0")),
        )
        (granted,) = self._desk.do(op)
        if isinstance(granted, StaleResult):
            return [f"stale: it is {_owner(granted)}"]
        assert isinstance(granted, Granted)
        lines: list[str] = []
        for grant in granted.grants:
            self._receipts.setdefault((name, grant.offset), []).append(granted.delivery)
            line = f"{grant.offset} attempt {grant.attempt}"
            line += f' after "{grant.reason}"' if grant.reason else ""
            lines.append(line + (f", redriven {grant.redrives}" if grant.redrives else ""))
        return lines or ["nothing"]

    def _settle(self, verb: str, plain: list[str], given: dict[str, str]) -> list[str]:
        """Offsets name the newest receipt; `0@1` is the first one of message 0."""
        name, *messages = plain
        to_back = "back" in messages
        receipts: list[tuple[int, list[int]]] = []
        for message in messages:
            if message != "back":
                offset, _, number = message.partition("@")
                known = self._receipts.get((name, int(offset)), [0])
                receipts.append((known[int(number) - 1 if number else -1], [int(offset)]))
        delay, visibility = given.get("delay"), given.get("visibility", "0ms")
        told = self._desk.settle(
            _ACTIONS[verb],
            receipts,
            self._groups[name],
            reason=given.get("reason", ""),
            delay_ms=-1 if delay is None else duration_ms(delay),
            to_back=to_back,
            visibility_ms=duration_ms(visibility),
            member=given.get("member", ""),
            generation=int(given.get("generation", "0")),
        )
        lines: list[str] = []
        for (_, (offset,)), settle in zip(receipts, told.settles, strict=True):
            lines.append(f"{offset} {settle.outcome or _REFUSALS[settle.code]}")
        return lines

    def _own(self, plain: list[str], _given: dict[str, str]) -> list[str]:
        """`own g MEMBER GENERATION`, with `dead` where the former owner did not let go."""
        name, member, generation, *how = plain
        member = "" if member == "nobody" else member
        op = Own(self._groups[name], member, int(generation), "dead" in how)
        (owned,) = self._desk.do(op)
        assert isinstance(owned, OwnedResult)
        taken = f", {owned.ended} taken back" if owned.ended else ""
        return [f"{_owner(owned)}{taken}"]

    def _wait(self, plain: list[str], _given: dict[str, str]) -> list[str]:
        """Time passes; the leader notes what it brings."""
        self._desk.wait(duration_ms(plain[0]))
        lines: list[str] = []
        for name, group in self._groups.items():
            count = self._desk.expire(group)
            lines += [f"{name}: {count} expired"] if count else []
        return lines

    def _show(self, plain: list[str], _given: dict[str, str]) -> list[str]:
        group = self._desk.group(self._groups[plain[0]])
        group.look()
        lanes = zip(LANES, group.ready.counts(), strict=True)
        ready = ", ".join(f"{count} {lane}" for lane, count in lanes if count)
        lines = [f"floor {group.committed_offset}; ready: {ready or 'none'}"]
        lines[0] += f"; in flight {len(group.leases)}; waiting {len(group.waiting)}"
        lines += [f"halted: {group.halted}"] if group.halted else []
        for offset, letter in group.dead.items():
            lines.append(f'dead: {offset} after {letter.attempts}, "{letter.reason}"')
        for key, waiting, head in group.parked():
            lines.append(f"parked: {key.decode() or f'the key of {head}'}, {waiting} waiting")
        return lines

    def _cancel(self, plain: list[str], _given: dict[str, str]) -> list[str]:
        codes = self._desk.cancel(*map(int, plain))
        return [f"{offset} {_CODES[code]}" for offset, code in zip(plain, codes, strict=True)]

    def _redrive(self, plain: list[str], given: dict[str, str]) -> list[str]:
        group = self._groups[plain[0]]
        force = given.get("force") == "yes"
        found = self._desk.redrive(*map(int, plain[1:]), group=group, force=force)
        return [f"{found.count} redriven, {found.refused} refused"]

    def _purge(self, plain: list[str], _given: dict[str, str]) -> list[str]:
        offsets = list(map(int, plain[1:]))
        return [f"{self._desk.count(Purged(self._groups[plain[0]], offsets))} purged"]

    def _commit(self, plain: list[str], _given: dict[str, str]) -> list[str]:
        return [f"{self._desk.commit(int(plain[1]), self._groups[plain[0]])} settled"]

    def _seek(self, plain: list[str], _given: dict[str, str]) -> list[str]:
        told = self._desk.seek(int(plain[1]), self._groups[plain[0]])
        return [f"at {told.after}, {told.replayed} replayed, {told.skipped} skipped"]

    def _park(self, plain: list[str], _given: dict[str, str]) -> list[str]:
        (found,) = self._desk.do(Parked(self._groups[plain[0]], plain[1].encode()))
        assert isinstance(found, CountResult)
        return [f"{found.count} waiting"]

    def _unpark(self, plain: list[str], _given: dict[str, str]) -> list[str]:
        (found,) = self._desk.do(Unparked(self._groups[plain[0]], plain[1].encode()))
        assert isinstance(found, CountResult)
        return [f"{found.count} waiting"]

    def _halt(self, plain: list[str], given: dict[str, str]) -> list[str]:
        self._desk.do(Halted(self._groups[plain[0]], given.get("reason", "asked to")))
        return []

    def _resume(self, plain: list[str], _given: dict[str, str]) -> list[str]:
        self._desk.do(Resumed(self._groups[plain[0]]))
        return []

    def _trim(self, plain: list[str], _given: dict[str, str]) -> list[str]:
        """As a leader does it: what is needed is carried first."""
        self._desk.retain(int(plain[0]))
        return [f"carried: {' '.join(map(str, sorted(self._desk.queue.reappended))) or 'nothing'}"]

    def _restart(self, _plain: list[str], _given: dict[str, str]) -> list[str]:
        self._desk.restart()
        return []


if __name__ == "__main__":
    for name in sys.argv[1:]:
        Path(name).write_text(play(Path(name).read_text()))
