"""Parts start bottom up and stop top down, also after a failed start."""

from __future__ import annotations

import asyncio

import pytest

from node.runtime.service import ServiceStack


class Part:
    """Writes down what happens to it; fails or hangs as told."""

    def __init__(
        self, name: str, story: list[str], *, fails: str = "", hangs: bool = False
    ) -> None:
        self.name = name
        self.story = story
        self.fails = fails
        self.hangs = hangs

    async def start(self) -> None:
        if self.fails == "start":
            raise OSError("no")
        self.story.append(f"+{self.name}")

    async def stop(self) -> None:
        self.story.append(f"-{self.name}")
        if self.fails == "stop":
            raise OSError("no")
        if self.hangs:
            await asyncio.Event().wait()


def stack(*parts: Part, timeout_s: float = 5.0) -> ServiceStack:
    return ServiceStack([(part.name, part) for part in parts], stop_timeout_s=timeout_s)


async def test_parts_start_bottom_up_and_stop_top_down() -> None:
    story: list[str] = []
    services = stack(Part("log", story), Part("raft", story), Part("http", story))

    await services.start()
    await services.stop()
    await services.stop()

    assert story == ["+log", "+raft", "+http", "-http", "-raft", "-log"]


async def test_a_failed_start_stops_what_ran_and_raises() -> None:
    story: list[str] = []
    services = stack(Part("log", story), Part("raft", story, fails="start"), Part("http", story))

    with pytest.raises(OSError):
        await services.start()

    assert story == ["+log", "-log"]


async def test_a_part_that_fails_or_hangs_keeps_no_other_from_stopping() -> None:
    story: list[str] = []
    services = stack(
        Part("log", story),
        Part("raft", story, hangs=True),
        Part("http", story, fails="stop"),
        timeout_s=0.05,
    )

    await services.start()
    await services.stop()

    assert story[3:] == ["-http", "-raft", "-log"]
