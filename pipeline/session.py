"""The Spark session that the pipeline's commands and tests run in."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from pipeline.datasource import register

JAVA_VERSION_MIN = 17
JAVA_MISSING = (
    f"Spark needs Java {JAVA_VERSION_MIN} or newer: "
    "apt-get install openjdk-17-jre-headless (Debian, Ubuntu), brew install openjdk@17 (macOS), "
    "or set JAVA_HOME"
)
SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # not the type of before 2018
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.redaction.options.regex": "(?i)url|apikey",  # plans and the UI show options else
}
"""What the pipeline relies on, whatever the cluster's defaults are."""
LOGGING = Path(__file__).resolve().with_name("log4j2.properties")
JVM_OPTIONS = "SPARK_SUBMIT_OPTS"
"""Of a JVM that is started from here; one that `spark-submit` started has been told already."""


def has_java() -> bool:
    """Whether a Java is where Spark looks for one."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java") is not None or (
        home is not None and os.access(os.path.join(home, "bin", "java"), os.X_OK)
    )


def session(
    name: str, *, master: str | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """The session of this process, made if there is none yet; `master` counts only then.

    Without a master it is the one that `spark-submit` was told, or else `local[*]`. Executors run
    the Python that runs here, unless PYSPARK_PYTHON says otherwise.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if "SPARK_CONF_DIR" not in os.environ:  # else there may be a configuration of one's own
        os.environ.setdefault(JVM_OPTIONS, f"-Dlog4j2.configurationFile={LOGGING.as_uri()}")
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    for key, value in {**SETTINGS, **(settings or {})}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark
