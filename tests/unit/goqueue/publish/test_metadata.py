"""What is known of topics: asked once for all who want to know it."""

from __future__ import annotations

import asyncio

import pytest

from goqueue.errors import Timeout, Unavailable, UnknownTopic
from goqueue.publish.metadata import KnownTopics, TopicFacts
from tests.one_node import eventually


class Asked:
    """Questions, each answered by the test."""

    def __init__(self) -> None:
        self.answers: list[asyncio.Future[TopicFacts]] = []

    def __call__(self, topic: str) -> asyncio.Future[TopicFacts]:
        self.answers.append(asyncio.get_running_loop().create_future())
        return self.answers[-1]


@pytest.fixture
async def asked() -> Asked:
    return Asked()


@pytest.fixture
async def known(asked: Asked) -> KnownTopics:
    return KnownTopics(asked)


async def begun(known: KnownTopics, count: int) -> list[asyncio.Task[TopicFacts]]:
    calls = [asyncio.ensure_future(known.get("orders")) for _ in range(count)]
    await asyncio.sleep(0)
    return calls


async def test_those_who_want_to_know_at_the_same_time_ask_once(
    known: KnownTopics, asked: Asked
) -> None:
    calls = await begun(known, 3)

    asked.answers[0].set_result(TopicFacts(3))

    assert await asyncio.gather(*calls) == [TopicFacts(3)] * 3
    assert await known.get("orders") == TopicFacts(3)
    assert len(asked.answers) == 1


async def test_each_has_a_failure_of_its_own_and_the_next_one_asks_again(
    known: KnownTopics, asked: Asked
) -> None:
    calls = await begun(known, 3)

    asked.answers[0].set_exception(Unavailable("not now"))
    told = await asyncio.gather(*calls, return_exceptions=True)

    assert [type(error) for error in told] == [Unavailable] * 3
    assert len(set(map(id, told))) == 3
    (again,) = await begun(known, 1)
    asked.answers[1].set_result(TopicFacts(3))
    assert await again == TopicFacts(3)


async def test_who_asks_may_give_up(known: KnownTopics, asked: Asked) -> None:
    calls = await begun(known, 3)

    calls[0].cancel()
    calls[2].cancel()
    await eventually(lambda: len(asked.answers) == 2)
    asked.answers[1].set_result(TopicFacts(3))

    assert await calls[1] == TopicFacts(3)


async def test_what_was_asked_before_a_topic_was_made_is_not_told_after_it(
    known: KnownTopics, asked: Asked
) -> None:
    (early,) = await begun(known, 1)
    known.forget("orders")
    (late,) = await begun(known, 1)
    asked.answers[1].set_result(TopicFacts(5))
    assert await late == TopicFacts(5)
    asked.answers[0].set_exception(UnknownTopic("orders"))

    with pytest.raises(UnknownTopic):
        await early
    assert await known.get("orders") == TopicFacts(5)


async def test_who_came_late_to_a_question_whose_time_was_over_asks_again(
    known: KnownTopics, asked: Asked
) -> None:
    first, late = await begun(known, 2)

    asked.answers[0].set_exception(Timeout("no answer in time"))
    await eventually(lambda: len(asked.answers) == 2)
    asked.answers[1].set_result(TopicFacts(3))

    assert await late == TopicFacts(3)
    assert isinstance(first.exception(), Timeout)
