"""`goqueue-pipeline executor`: what Spark's driver asks of the pods that it makes on Kubernetes.

The driver starts each with the one argument `executor`, and says the rest in environment variables;
the program becomes the Java process that it asked for.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import typer

BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
OPTIONS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}
MEMORY = "SPARK_EXECUTOR_MEMORY"
_JAVA_OPTION = re.compile(r"SPARK_JAVA_OPT_(\d+)")


def register(app: typer.Typer) -> None:
    """Add the verb, which nobody but Spark's driver asks for."""
    app.command("executor", hidden=True)(executor)


def executor() -> None:
    """Become an executor of Spark; made by a driver in another pod."""
    missing = [name for name in (MEMORY, *OPTIONS.values()) if name not in os.environ]
    spec = find_spec("pyspark")
    if missing or spec is None or spec.origin is None:
        problem = f"no {', '.join(missing)}" if missing else "pyspark is not installed"
        typer.echo(f"error: {problem}: Spark's driver starts executors by itself", err=True)
        raise typer.Exit(2)
    words = command(os.environ, Path(spec.origin).parent)
    os.execvp(words[0], words)


def command(environment: Mapping[str, str], home: Path) -> list[str]:
    """The Java process that the driver asked for; `home` is where Spark is."""
    numbered = [
        (int(found[1]), text)
        for name, text in environment.items()
        if (found := _JAVA_OPTION.fullmatch(name))
    ]
    java = environment.get("JAVA_HOME")
    memory = environment[MEMORY]
    extra = environment.get("SPARK_EXTRA_CLASSPATH", "")
    classes = ":".join(filter(None, (extra, str(home / "jars" / "*"))))
    return [
        f"{java}/bin/java" if java else "java",
        *(text for _, text in sorted(numbered)),
        f"-Xms{memory}",
        f"-Xmx{memory}",
        *("-cp", classes, BACKEND),
        *(word for option, name in OPTIONS.items() for word in (option, environment[name])),
    ]
