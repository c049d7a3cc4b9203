"""What the source and the sink may do with keys for some topics, or for one kind of work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from goqueue import AsyncClient
from goqueue.errors import Forbidden, Unauthenticated
from node.http.auth.authenticator import Authenticator
from node.http.server.app import Entrance, HttpFront
from pipeline.options import Options
from pipeline.sink.columns import Columns
from pipeline.sink.errors import SinkError
from pipeline.sink.identity import of_write
from pipeline.sink.options import SinkOptions
from pipeline.sink.task import TaskWrite
from pipeline.sink.writer import batch_writer
from pipeline.source.batch import BatchReader
from pipeline.source.options import parse
from pipeline.source.stream import StreamReader
from tests.one_node import NOW_MS, Keys, cluster_of, one_node

T = TypeVar("T")
SCHEMA = StructType([StructField("topic", StringType()), StructField("value", BinaryType())])
ORDERS, OTHER = "shop.orders", "other"


@dataclass
class Scene:
    """A locked node with two topics, a message in each."""

    url: str
    keys: Keys

    async def options(self, role: str, *prefixes: str, **more: str) -> dict[str, str]:
        """Of a read or a write with a new key."""
        reach = prefixes or ("",)
        made = await self.keys.create_key("", name="", role=role, prefixes=reach, expires_ms=0)
        return {"servers": self.url, "apiKey": made.secret, "requestTimeout": "5s", **more}


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with one_node() as node:
        with ThreadPoolExecutor(1) as workers:
            keys = Keys(cluster_of(node.broker), lambda: NOW_MS, workers)
            entrance = Entrance(authenticator=Authenticator(keys.checks), keys=keys)
            front = HttpFront(node.broker, port=0, entrance=entrance)
            await front.start()
            scene = Scene(f"http://127.0.0.1:{front.port}", keys)
            admin = await scene.options("admin")
            async with AsyncClient(scene.url, api_key=admin["apiKey"]) as client:
                for topic in (ORDERS, OTHER):
                    await client.create_topic(topic, partitions=1)
                    await client.publish(topic, topic)
            yield scene
            await front.stop()


async def off_loop(work: Callable[[], T]) -> T:
    """As the node runs on this one."""
    return await asyncio.to_thread(work)


def read(options: dict[str, str]) -> list[Any]:
    reader = BatchReader(parse(Options(options), streaming=False), SCHEMA)
    return [row for part in reader.partitions() for got in reader.read(part) for row in rows(got)]


def rows(batch: Any) -> list[Any]:
    found: list[Any] = batch.column("topic").to_pylist()
    return found


def write(options: dict[str, str]) -> None:
    """As a task does."""
    schema = StructType([StructField("value", StringType())])
    batch_writer(options, schema, False)
    told = SinkOptions.of(options, streaming=False)
    with TaskWrite(of_write(None, 0)(0), Columns.of(schema), told) as task:
        task.write(pa.RecordBatch.from_pydict({"value": ["a"]}))
        task.finish()


@pytest.mark.parametrize("role", ["readonly", "consumer"])
async def test_a_key_that_may_only_read_reads_its_topics_in_batches_and_streams(
    scene: Scene, role: str
) -> None:
    options = await scene.options(role, "shop.", subscribePattern=".*")

    def stream() -> Any:
        reader = StreamReader(parse(Options(options), streaming=True), SCHEMA)
        try:
            return reader.initialOffset()
        finally:
            reader.stop()

    assert await off_loop(lambda: read(options)) == [ORDERS]
    assert (await off_loop(stream)).keys() == {ORDERS}


async def test_a_topic_that_the_key_is_not_for_is_named_with_the_keys_reach(scene: Scene) -> None:
    options = await scene.options("readonly", "shop.", subscribe=f"{ORDERS},{OTHER}")

    with pytest.raises(Forbidden, match=r"topic other is beyond the reach of key .* shop\.\*"):
        await off_loop(lambda: read(options))


async def test_keys_that_may_not_read_and_keys_that_are_none_are_refused_at_once(
    scene: Scene,
) -> None:
    producer = await scene.options("producer", subscribe=ORDERS)
    with pytest.raises(Forbidden, match="producer"):
        await off_loop(lambda: read(producer))

    for key in ("nonsense", ""):
        with pytest.raises(Unauthenticated):
            await off_loop(lambda key=key: read({**producer, "apiKey": key}))


async def test_a_sink_whose_key_may_not_publish_says_so_and_one_that_may_writes(
    scene: Scene,
) -> None:
    allowed = await scene.options("producer", "shop.", topic=ORDERS)
    readonly = await scene.options("readonly", topic=ORDERS)

    await off_loop(lambda: write(allowed))
    with pytest.raises(SinkError, match=r"of Spark partition 0, partition 0 of topic .*readonly"):
        await off_loop(lambda: write(readonly))
    with pytest.raises(SinkError, match=r"topic other: topic other is beyond the reach of key"):
        await off_loop(lambda: write({**allowed, "topic": OTHER}))
