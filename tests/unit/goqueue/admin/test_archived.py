"""Reports of archives through the library, against a real node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from goqueue import AsyncClient, Client
from goqueue.errors import GoQueueError, OtherArchive, UnknownTopic
from tests.one_node import serving

HERE = "s3://bucket/archive"


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with serving() as url, AsyncClient(url) as client:
        await client.create_topic("orders", partitions=2)
        yield url


async def test_a_report_is_answered_by_partition_and_seen_in_the_topic(url: str) -> None:
    async with AsyncClient(url) as client:
        await client.publish("orders", "v", partition=1)
        before = await client.topic("orders")
        told = await client.admin.report_archived("orders", HERE, {0: 0, 1: 1}, topic_id=before.id)
        topic = await client.topic("orders")

    assert [(one.partition, one.position, one.lag) for one in told] == [(0, 0, 0), (1, 1, 0)]
    assert (before.archive, topic.archive) == (None, HERE)
    archive = topic.partition_details[1].archive
    assert archive is not None and archive.position == 1


async def test_refusals_are_errors_of_their_own(url: str) -> None:
    async with AsyncClient(url) as client:
        with pytest.raises(GoQueueError) as beyond:
            await client.admin.report_archived("orders", HERE, {0: 1})
        assert (beyond.value.code, beyond.value.http_status) == ("offset_out_of_range", 400)
        with pytest.raises(UnknownTopic):
            await client.admin.report_archived("orders", HERE, {0: 0}, topic_id="1-77")
        await client.admin.report_archived("orders", HERE, {0: 0})
        with pytest.raises(OtherArchive) as elsewhere:
            await client.admin.report_archived("orders", "/other", {0: 0})
        assert elsewhere.value.code == "other_archive"
        await client.admin.report_archived("orders", "/other", {0: 0}, replace=True)


async def test_the_blocking_client_reports_too(url: str) -> None:
    def report() -> int:
        with Client(url) as client:
            return client.admin.report_archived("orders", HERE, {1: 0})[0].partition

    assert await asyncio.to_thread(report) == 1
