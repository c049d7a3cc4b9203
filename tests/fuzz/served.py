"""A real node to be fuzzed, with something to name in it, and what it takes of memory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.processes import ROOT, Cluster, Node, publish
from tests.ports import free_ports

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)
GROWTH_BYTES_MAX = 96 << 20
"""More memory than this, kept when all is over, is a leak: topics and messages that fuzzing makes
stay far below."""


@dataclass
class OpenApiRun:
    """How schemathesis ended."""

    code: int
    output: str

    @property
    def cases(self) -> int:
        found = re.search(r"(\d+) generated", self.output)
        return int(found[1]) if found else 0


@contextmanager
def served_node(folder: Path, *more: str) -> Iterator[Node]:
    """One node of the highest level that has two topics with messages, two groups and a
    schedule; `more` are settings."""
    (port,) = free_ports(1)
    settings = ["limits.longPoll=100ms", "listeners.h2.enabled=true", f"listeners.h2.port={port}"]
    settings += more
    with Cluster(folder, 1, settings, auto_create=True) as cluster:
        node = cluster.start()[0]
        for topic in ("fuzzed", "other"):
            assert node.ask("POST", "/topics", {"name": topic, "num_partitions": 2}).status == 201
            publish(node, topic, [{"value": str(n), "key": str(n)} for n in range(20)])
        for group, settings in (("workers", {}), ("keyed", {"ordering": "key"})):
            assert node.ask("PUT", f"/groups/{group}", settings).status in (200, 201)
        nightly = {"name": "nightly", "topic": "other", "cron": "0 0 3 * * *", "value": "v"}
        assert node.ask("POST", "/schedules", nightly).status == 201
        assert node.ask("POST", "/admin/cluster/upgrade", {}).status == 200
        yield node


def port_of(node: Node, listener: str) -> int:
    """Where it listens for another protocol."""
    named = f"listeners.{listener}.port="
    (port,) = (int(word.removeprefix(named)) for word in node.arguments if word.startswith(named))
    return port


def memory_bytes(node: Node) -> int:
    """The node's resident private memory."""
    assert node.process is not None
    status = Path(f"/proc/{node.process.pid}/status").read_text()
    found = re.search(r"RssAnon:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


def fuzz_openapi(
    node: Node, seed: int, examples: int, phases: str, *, only: str = ""
) -> OpenApiRun:
    """Requests made from the node's own OpenAPI document, and answers held against it."""
    command = [
        str(Path(sys.executable).with_name("st")),
        "run",
        f"{node.url}/openapi.json",
        *("--checks", ",".join(CHECKS)),
        *("--max-examples", str(examples), "--seed", str(seed), "--phases", phases),
        *("--request-timeout", "15", "--workers", "2", "--no-color", "--continue-on-failure"),
        *("--generation-database", "none", "--warnings", "off"),
        *(("--include-path-regex", only) if only else ()),
    ]
    environment = {
        **os.environ,
        "SCHEMATHESIS_HOOKS": "tests.fuzz.hooks",
        "PYTHONPATH": f"{ROOT}:{ROOT / 'client'}",
    }
    ran = subprocess.run(
        command, cwd=node.folder, env=environment, capture_output=True, text=True, check=False
    )
    return OpenApiRun(ran.returncode, ran.stdout + ran.stderr)
