"""Spark's formats from the wheels, where `pipeline.py`, `log.py` and so on are the user's, and
raise: in the driver and in its Python workers."""

from __future__ import annotations

import pytest

from goqueue import Client
from pipeline.session import JAVA_MISSING, has_java
from tests.cluster.processes import Cluster
from tests.pipeline.conftest import QUICK_JAVA
from tests.wheels.installed import Installed, install

TOPIC = "installed"
MODULES = """
import importlib, pkgutil, goqueue_server.pipeline as ours
found = pkgutil.walk_packages(ours.__path__, "goqueue_server.pipeline.")
names = [one.name for one in found]
for name in names: importlib.import_module(name)

from goqueue_server.pipeline.analytics import page, queries
page.templates().get_template("report.html")
print(len(names), len([queries.query(name) for name in (*queries.VIEWS, *queries.TABLES)]))
"""
APPLICATION = """
import sys
from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.extraJavaOptions", sys.argv[3]).getOrCreate()
)
options = {"servers": sys.argv[1], "topic": sys.argv[2]}
rows = spark.createDataFrame([("k1", "one"), ("k2", "two")], "key string, value string")
rows.write.format("goqueue").mode("append").options(**options).save()
options = {"servers": sys.argv[1], "subscribe": sys.argv[2]}
for row in spark.read.format("goqueue").options(**options).load().collect():
    print("ROW", bytes(row.key).decode(), bytes(row.value).decode(), type(row.offset).__name__)
print("EVENTS", spark.read.format("goqueue.events").options(**options).load().count() >= 0)
spark.stop()
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    if not has_java():
        pytest.skip(JAVA_MISSING)
    return install(tmp_path_factory.mktemp("installed"))


def test_spark_finds_reads_and_writes_the_formats(
    installed: Installed, cluster: Cluster, servers: str
) -> None:
    with Client(servers.split(",")) as client:
        client.create_topic(TOPIC, partitions=2, replication_factor=3)
    (installed.users / "application.py").write_text(APPLICATION)

    told = installed.run("python", "application.py", servers, TOPIC, QUICK_JAVA).splitlines()

    assert sorted(line for line in told if line.startswith("ROW ")) == [
        "ROW k1 one int",
        "ROW k2 two int",
    ]
    assert "EVENTS True" in told


def test_every_module_of_the_pipeline_is_imported_and_finds_its_files(
    installed: Installed,
) -> None:
    modules, queries = map(int, installed.run("python", "-c", MODULES).split())

    assert modules > 50
    assert queries > 20
