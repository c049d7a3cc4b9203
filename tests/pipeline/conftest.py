"""One Spark session and one three-node cluster for all tests of this folder.

Tests name their topics themselves and leave the cluster whole: who kills a node starts it again.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipeline.session import JAVA_MISSING, has_java, session
from tests.cluster.processes import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT_PATHS = os.pathsep.join(path for path in sys.path if path)
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A program that lives for minutes should not spend them on compiling itself."""
LOCAL = {
    "spark.driver.extraJavaOptions": QUICK_JAVA,
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.executorEnv.PYTHONPATH": ROOT_PATHS,
}

SHORT_SEGMENTS = ("storage.segmentBytes=256KiB", "storage.retentionCheck=200ms")
"""So that retention, where a test asks for it, has something to take, and soon."""


def quick_python(folder: Path) -> Path:
    """The interpreter, without the zipped copy of PySpark that Spark puts first on its path: each
    process would compile it anew (1.9 s of processor time to start, 0.7 s without)."""
    script = folder / "python"
    script.write_text(
        "#!/bin/sh\n"
        "PYTHONPATH=$(printf %s \"$PYTHONPATH\" | tr : '\\n' | grep -v '[.]zip$' | paste -sd:)\n"
        f'export PYTHONPATH\nexec {sys.executable} "$@"\n'
    )
    script.chmod(0o755)
    return script


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    if not has_java():
        pytest.skip(JAVA_MISSING)
    os.environ["PYTHONPATH"] = ROOT_PATHS  # what Spark's Python workers import from
    os.environ["PYSPARK_PYTHON"] = str(quick_python(tmp_path_factory.mktemp("python")))
    started = session("goqueue-tests", master="local[2]", settings=LOCAL)
    started.sparkContext.setLogLevel("ERROR")
    yield started
    started.stop()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("pipeline"), 3, SHORT_SEGMENTS).start() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def servers(cluster: Cluster) -> str:
    """The nodes' addresses, as the option `servers` takes them."""
    return ",".join(node.url for node in cluster.nodes)
