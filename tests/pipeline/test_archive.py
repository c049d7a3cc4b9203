"""The archive job over a real cluster and a real filesystem: what is in it, and what goes wrong."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyarrow import parquet

from goqueue import Client
from goqueue.archive.layout import Kind, Series
from goqueue.archive.manifest import File, Manifest, commit, newest
from pipeline.archive.compaction import Compacted, compact
from pipeline.archive.hadoop_store import HadoopStore, StoreFailed
from pipeline.archive.job import Archived
from pipeline.archive.plan import Bounds
from pipeline.archive.run import Run
from pipeline.archive.sweep import sweep
from pipeline.archive.topics import archive_topics, feed_of_series
from pipeline.archive.verification import Verified, verify
from pipeline.broker import Broker
from pipeline.options import Options
from pipeline.source.reading import Pace
from tests.cluster.processes import Cluster, eventually
from tests.pipeline.messages import by_partition, publish, trim

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


T = TypeVar("T")
KILLS = int(os.environ.get("GOQUEUE_ARCHIVE_KILLS", "2"))
KILL_SEED = int(os.environ.get("GOQUEUE_ARCHIVE_SEED", "1"))


class Killed(BaseException):
    """The job dies here: nothing of it goes on, not even what it does when it fails."""


class Scene:
    """One topic's archive in a folder, and runs of the job on it."""

    def __init__(self, spark: SparkSession, servers: str, topic: str, folder: Path) -> None:
        self.spark, self.topic, self.folder = spark, topic, folder
        self.access = Options({"servers": servers}).access()
        self.store = HadoopStore(spark, str(folder))
        self.client = Client(servers)
        self.said: list[str] = []

    def run(
        self,
        rows: int = 300,
        *,
        pace: int | None = None,
        reached: Callable[[str], None] = lambda _: None,
    ) -> Archived:
        """One run of the job, which must not fail."""
        with Broker(self.access) as broker:
            done, failures = archive_topics(
                self.described(rows, reached), broker, [self.topic], [Kind.MESSAGES], Pace(pace)
            )
        assert failures == []
        return done

    def described(
        self, rows: int = 300, reached: Callable[[str], None] = lambda _: None, grace_s: float = 9e9
    ) -> Run:
        return Run(
            uuid.uuid4().hex,
            self.spark,
            self.store,
            Bounds(rows),
            files_per_wave=4,
            grace_s=grace_s,
            say=self.said.append,
            reached=reached,
        )

    @property
    def series(self) -> Series:
        return Series(Kind.MESSAGES, self.topic, self.client.topic(self.topic).id)

    @property
    def manifest(self) -> Manifest:
        return newest(self.store, self.series)

    def verified(self) -> Verified:
        with Broker(self.access) as broker:
            feed = feed_of_series(broker, self.series, Pace())
            return verify(self.described(), self.series, feed)

    def data(self) -> list[Path]:
        return sorted(self.folder.rglob("*+*.parquet"))


@pytest.fixture
def scene(
    spark: SparkSession, servers: str, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Scene]:
    topic = request.node.name.partition("[")[0].removeprefix("test_")[:100]
    scene = Scene(spark, servers, f"{topic}-{uuid.uuid4().hex[:6]}", tmp_path / "archive")
    scene.client.create_topic(scene.topic, partitions=2, replication_factor=3)
    yield scene
    scene.client.close()


def test_messages_of_every_shape_come_back_byte_for_byte_after_the_log_has_lost_them(
    scene: Scene,
) -> None:
    publish(scene.client, scene.topic, 0, 2000)
    published = by_partition(list(scene.client.messages(scene.topic)))

    first = scene.run()
    nothing = scene.run()
    publish(scene.client, scene.topic, 2000, 100)
    second = scene.run()

    assert (first.rows, nothing.files, second.rows) == (2000, 0, 100)
    assert scene.manifest.positions() == {0: 1050, 1: 1050}
    assert scene.verified().compared == 2100
    told = [one.archive for one in scene.client.partitions(scene.topic)]
    assert [one.position for one in told if one is not None] == [1050, 1050]
    trim(scene.client, scene.topic, 1)
    replayed = list(scene.client.replay(scene.topic, archive=str(scene.folder)))
    old = [one for one in replayed if one.offset < 1000]
    assert by_partition(old) == published


def test_what_retention_took_first_is_told_as_missing(scene: Scene) -> None:
    publish(scene.client, scene.topic, 0, 2000)
    trim(scene.client, scene.topic, 300_000)
    starts = {one.partition: one.earliest for one in scene.client.partitions(scene.topic)}
    told = 0

    done = scene.run()

    for number in (0, 1):  # retention may go on meanwhile: then there are several gaps
        gaps = scene.manifest.missing(number)
        ends = [gap.last + 1 for gap in gaps]
        assert [gap.first for gap in gaps] == [0, *ends[:-1]]
        assert ends[-1] >= starts[number]
        told += ends[-1]
    assert done.missing == told
    assert any("deleted before" in text for text in scene.said)
    assert (scene.verified().problems, scene.verified().rows) == ([], 2000 - done.missing)


def test_a_broker_that_dies_while_it_is_read_loses_and_doubles_nothing(
    cluster: Cluster, scene: Scene
) -> None:
    publish(scene.client, scene.topic, 0, 2000)
    killed = cluster.leader(scene.topic, 0)

    def kill() -> None:
        eventually("a staging folder", lambda: list(scene.folder.rglob("_staging/*")) or None)
        killed.kill()

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    try:
        done = scene.run(1000, pace=400_000)
        killer.join()
        assert not killed.is_running()
    finally:
        killer.join()
        killed.start()
        cluster.wait_until_ready()

    assert (done.rows, scene.verified().compared) == (2000, 2000)


class Dying(HadoopStore):
    """Of the job that is killed before, or after, its so-manyth change to the filesystem."""

    def __init__(self, spark: SparkSession, folder: Path, change: int, after: bool) -> None:
        super().__init__(spark, str(folder))
        self.change, self.after, self.changes = change, after, 0

    def create(self, path: str, data: bytes) -> bool:
        return self.dying(lambda: super(Dying, self).create(path, data))

    def move(self, source: str, target: str) -> bool:
        return self.dying(lambda: super(Dying, self).move(source, target))

    def remove(self, path: str) -> None:
        self.dying(lambda: super(Dying, self).remove(path))

    def dying(self, work: Callable[[], T]) -> T:
        self.changes += 1
        if self.changes == self.change and not self.after:
            raise Killed
        done = work()
        if self.changes == self.change:
            raise Killed
        return done


def test_a_job_killed_anywhere_leaves_neither_a_gap_nor_a_double(scene: Scene) -> None:
    rng = random.Random(KILL_SEED)
    published = kills = 0
    for _ in range(KILLS):
        publish(scene.client, scene.topic, published, 400)
        published += 400
        # a wave removes its staging twice, moves four files, and creates a manifest
        scene.store = Dying(scene.spark, scene.folder, rng.randrange(1, 8), rng.random() < 0.5)
        with contextlib.suppress(Killed):
            scene.run(rng.choice((70, 100)))
            kills -= 1
        kills += 1
    scene.store = HadoopStore(scene.spark, str(scene.folder))
    scene.run(130)

    found = scene.verified()
    assert (found.problems, found.compared) == ([], published)
    sweep(scene.described(grace_s=0.0), scene.series)
    assert {str(path.relative_to(scene.folder)) for path in scene.data()} == {
        f"{scene.series.folder}/{file.path}" for file in scene.manifest.files
    }
    assert not list(scene.folder.rglob("_staging/*"))
    assert kills >= KILLS // 2


def test_two_jobs_at_once_that_cut_differently_make_one_archive(scene: Scene) -> None:
    publish(scene.client, scene.topic, 0, 1000)
    failed: list[BaseException] = []

    def work(rows: int) -> None:
        try:
            scene.run(rows)
        except BaseException as error:  # noqa: BLE001 - told by the test
            failed.append(error)

    jobs = [threading.Thread(target=work, args=(rows,)) for rows in (250, 400)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()

    assert failed == []
    assert (scene.verified().problems, scene.verified().compared) == ([], 1000)


def test_compaction_makes_one_file_of_many_with_the_same_rows(scene: Scene) -> None:
    publish(scene.client, scene.topic, 0, 1000)
    scene.run(130)
    before = scene.manifest

    done = compact(scene.described(100_000), scene.series)
    again = compact(scene.described(100_000), scene.series)

    assert (done, again) == (Compacted(8, 2), Compacted())
    assert scene.manifest.positions() == before.positions()
    assert (scene.verified().problems, scene.verified().compared) == ([], 1000)
    assert len(scene.data()) == 10, "what a reader has begun with stays for a while"
    sweep(scene.described(grace_s=0.0), scene.series)
    assert len(scene.data()) == 2
    assert scene.verified().notes == []


def test_verify_finds_a_flipped_byte_a_lost_file_and_a_lost_row(scene: Scene) -> None:
    publish(scene.client, scene.topic, 0, 1000)
    scene.run(130)
    flipped, lost, short, changed = scene.manifest.files[:4]
    path = scene.folder / scene.series.folder
    data = bytearray((path / flipped.path).read_bytes())
    data[len(data) // 2] ^= 1
    (path / flipped.path).write_bytes(data)
    (path / lost.path).unlink()

    def rewrite(file: File, make: Callable[[pa.Table], pa.Table]) -> File:
        """Whoever changes a file and its manifest alike."""
        table = make(parquet.ParquetFile(path / file.path).read())
        parquet.write_table(table, path / file.path, compression="zstd")
        written = (path / file.path).read_bytes()
        digest = hashlib.sha256(written).hexdigest()
        return msgspec.structs.replace(
            file, count=table.num_rows, bytes=len(written), sha256=digest
        )

    def swapped(manifest: Manifest) -> Manifest:
        gone = pc.field("offset") != short.first + 7
        new = {
            short: rewrite(short, lambda table: table.filter(gone)),
            changed: rewrite(changed, with_other_lanes),
        }
        files = tuple(new.get(file, file) for file in manifest.files)
        return msgspec.structs.replace(manifest, files=files)

    commit(scene.store, scene.series, swapped, writer="forger", now_ms=0)

    found = scene.verified()

    told = {text.partition(": ")[0]: text.partition(": ")[2] for text in found.problems}
    assert told.keys() == {file.path for file in (flipped, lost, short, changed)}
    assert "checksum" in told[flipped.path]
    assert "lost" in told[lost.path]
    assert told[short.path].startswith(f"offset {short.first + 7} is lost")
    assert told[changed.path].startswith(f"lane at offset {changed.first}")
    assert any("PROBLEM" in line for line in found.tell())


def with_other_lanes(table: pa.Table) -> pa.Table:
    at = table.schema.get_field_index("lane")
    return table.set_column(at, "lane", pa.array(["background"] * table.num_rows))


def test_stores_create_and_move_only_where_nothing_is(spark: SparkSession, tmp_path: Path) -> None:
    configuration = spark.sparkContext._jsc.hadoopConfiguration()
    (tmp_path / "mounted").mkdir()
    configuration.set("fs.viewfs.mounttable.tests.link./m", f"file://{tmp_path}/mounted")
    for root in (str(tmp_path / "plain, and%20odd"), "viewfs://tests/m/below"):
        store = HadoopStore(spark, root)

        assert store.names("a") == []
        assert store.create("a/b", b"\x00first") and not store.create("a/b", b"second")
        assert store.create("a/c", b"third") and not store.move("a/c", "a/b")
        assert store.move("a/c", "d/e/f")
        assert (store.read("a/b"), store.read("d/e/f")) == (b"\x00first", b"third")
        assert sorted(file.path for file in store.files("d")) == ["d/e/f"]
        store.remove("d")
        store.remove("d")
        assert (store.names("d"), store.names("a")) == ([], ["b"])
        with pytest.raises(FileNotFoundError):
            store.read("a/c")
        assert store.is_exclusive is not root.startswith("viewfs")


def test_a_destination_that_spark_cannot_reach_is_one_sentence(spark: SparkSession) -> None:
    for url, hint in (("s3a://bucket/x", "--packages"), ("nothing://x/y", "nothing")):
        with pytest.raises(StoreFailed, match=hint) as failed:
            HadoopStore(spark, url)
        assert "\n" not in failed.value.message
