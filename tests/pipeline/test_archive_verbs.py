"""`goqueue-pipeline archive`, `compact` and `verify`, as they are typed; and archived events."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import typer
from typer.testing import CliRunner, Result

from goqueue import Client
from goqueue.archive.layout import Kind, Series
from goqueue.archive.manifest import newest
from goqueue.archive.schema import spark_ddl
from pipeline.archive import verbs
from pipeline.archive.hadoop_store import HadoopStore
from tests.pipeline.messages import publish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def client(servers: str) -> Iterator[Client]:
    with Client(servers) as client:
        yield client


def run(*arguments: str) -> Result:
    app = typer.Typer()
    verbs.register(app)
    return CliRunner().invoke(app, arguments)


def test_topics_are_archived_compacted_and_verified_by_their_patterns(
    spark: SparkSession, servers: str, client: Client, tmp_path: Path
) -> None:
    names = [f"cli-{uuid.uuid4().hex[:6]}-{what}" for what in ("a", "b")]
    pattern = f"{names[0].rpartition('-')[0]}-*"
    client.create_topic(names[0], partitions=2)
    publish(client, names[0], 0, 200)
    where = ("--destination", str(tmp_path), "--topic", pattern)

    kind = ("--kind", "messages", "--rows-per-file", "30")
    first = run("archive", *where, "--servers", servers, *kind)
    compacted = run("compact", *where)
    sound = run("verify", *where, "--servers", servers)
    client.delete_topic(names[0])
    gone = run("verify", *where, "--servers", servers)
    for path in tmp_path.rglob("*.parquet"):
        path.unlink()
    lost = run("verify", *where, "--no-brokers")

    assert (first.exit_code, "archived 200 rows in 8 files" in first.output) == (0, True), first
    assert (compacted.exit_code, "8 files have become 2" in compacted.output) == (0, True)
    assert (sound.exit_code, "200 rows are the same" in sound.output) == (0, True), sound.output
    assert (gone.exit_code, "do not have this topic any more" in gone.output) == (0, True)
    assert (lost.exit_code, "2 problems" in lost.output) == (1, True), lost.output


def test_a_name_that_there_is_no_topic_of_is_told_in_one_sentence(
    spark: SparkSession, servers: str, tmp_path: Path
) -> None:
    for verb in ("archive", "verify"):
        failed = run(
            verb, "--destination", str(tmp_path), "--topic", "nosuch", "--servers", servers
        )

        assert (failed.exit_code, failed.output) == (1, "error: topic not found: nosuch\n")


def test_an_archive_that_replaces_another_says_so(
    spark: SparkSession, servers: str, client: Client, tmp_path: Path
) -> None:
    topic = f"moved-{uuid.uuid4().hex[:6]}"
    client.create_topic(topic, partitions=1)
    client.publish_many(topic, [b"one", b"two"])
    what = ("archive", "--topic", topic, "--servers", servers, "--kind", "messages")
    old, new = ((*what, "--destination", str(tmp_path / name)) for name in ("old", "new"))

    assert run(*old).exit_code == 0
    refused = run(*new)
    taken = run(*new, "--replace")

    assert (refused.exit_code, "archived, but" in refused.output) == (1, True), refused.output
    assert taken.exit_code == 0
    assert client.topic(topic).archive == f"file:{tmp_path}/new"


def test_events_are_archived_as_the_brokers_tell_them(
    spark: SparkSession, servers: str, client: Client, tmp_path: Path
) -> None:
    topic = f"told-{uuid.uuid4().hex[:6]}"
    client.create_topic(topic, partitions=2)
    publish(client, topic, 0, 400)
    where = ("--destination", str(tmp_path), "--topic", topic, "--kind", "events")
    begun = run("archive", *where, "--servers", servers, "--rows-per-file", "300")
    for message in client.receive("workers", topic, limit=50):
        message.ack()

    run("archive", *where, "--servers", servers, "--rows-per-file", "300")
    sound = run("verify", *where, "--servers", servers)
    run("compact", *where)

    assert begun.exit_code == 0, begun.output
    assert (sound.exit_code, "PROBLEM" in sound.output) == (0, False), sound.output
    series = Series(Kind.EVENTS, topic, client.topic(topic).id)
    files = newest(HadoopStore(spark, str(tmp_path)), series).files
    paths = [f"{tmp_path}/{series.folder}/{file.path}" for file in files]
    archived = spark.read.schema(spark_ddl(Kind.EVENTS)).parquet(*paths)
    live = (
        spark.read.format("goqueue.events")
        .option("servers", servers)
        .option("subscribe", topic)
        .load()
    )
    ours, theirs = (sorted(map(repr, rows.collect())) for rows in (archived, live))
    assert ours == theirs
    assert any("ACKNOWLEDGED" in row for row in ours)
