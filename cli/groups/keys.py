"""`goqueue-cli group resume`, `park`, `release`: what a group withholds, and lets go again."""

from __future__ import annotations

import base64
from typing import Annotated

import typer

from cli.output.formats import count_text
from cli.run.options import command
from cli.run.session import Json, Session
from goqueue.transport.http import join

Name = Annotated[str, typer.Argument(help="The group's name.", show_default=False)]
Key = Annotated[str, typer.Argument(help="The key.", show_default=False)]
Topic = Annotated[str, typer.Option("--topic", "-t", help="The topic.")]
OneTopic = Annotated[str | None, typer.Option("--topic", "-t", help="Only this topic.")]


async def resume(session: Session, name: Name, topic: OneTopic = None) -> None:
    """Let a halted group go on."""
    body = {} if topic is None else {"topic": topic}
    async with session:
        answer = await session.request("POST", join("groups", name, "resume"), body=body)
    count = int(answer["resumed"])
    text = f"goes on in {count_text(count, 'partition')}" if count else "was not halted"
    session.output.success(f"Group {name} {text}", answer)


async def park(session: Session, name: Name, key: Key, topic: Topic) -> None:
    """Withhold a key's messages from a group with `--ordering key`."""
    async with session:
        answer = await _turn(session, name, topic, key, "park")
    waiting = count_text(int(answer["waiting"]), "message")
    session.output.success(f"Key {key} of {topic} is parked for group {name} ({waiting})", answer)


async def release(session: Session, name: Name, key: Key, topic: Topic) -> None:
    """Let a parked key's messages flow again."""
    async with session:
        found = await session.get(join("groups", name, "keys", "parked"), topic=topic)
        was_parked = any(_key(one) == key.encode() for one in found["parked"])
        answer = await _turn(session, name, topic, key, "release")
    waiting = count_text(int(answer["waiting"]), "message")
    text = f"flows again for group {name} ({waiting})"
    if not was_parked:
        text = f"was not parked for group {name}"
    session.output.success(f"Key {key} of {topic} {text}", {**answer, "was_parked": was_parked})


async def _turn(session: Session, name: str, topic: str, key: str, verb: str) -> Json:
    body = {"topic": topic, "key": key}
    return await session.request("POST", join("groups", name, "keys", verb), body=body)


def parked_rows(partitions: list[Json]) -> list[Json]:
    """The parked keys of each topic, once each: a key is parked in all of its partitions."""
    rows: dict[tuple[str, str], Json] = {}
    for partition in partitions:
        for one in partition.get("parked") or ():
            row = {"topic": partition["topic"], "key": one["key"], "waiting": 0}
            row = rows.setdefault((row["topic"], row["key"]), row)
            row["waiting"] += int(one["waiting"])
    return list(rows.values())


def _key(parked: Json) -> bytes:
    key: str = parked["key"]
    return base64.b64decode(key) if parked.get("key_encoding") == "base64" else key.encode()


def register(app: typer.Typer) -> None:
    command(app, "resume")(resume)
    command(app, "park")(park)
    command(app, "release")(release)
