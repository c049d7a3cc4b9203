"""What a newcomer is told to do works: `helm test`'s pods and NOTES.txt, against a real node.

The node is a process with the chart's own configuration, secrets and certificates for a cluster of
one, at a free port and with its files elsewhere; so are the programs that talk to it.
"""

from __future__ import annotations

import base64
import os
import re
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.processes import eventually
from tests.deploy.rendering import notes, one, render, rendered
from tests.deploy.report import Report
from tests.ports import free_ports

Json = dict[str, Any]
VALUES: Json = {
    "replicaCount": 1,
    "kubernetes": {"enabled": False},
}
PROGRAMS = Path(sys.executable).parent
FOLDERS = re.compile(r"(?<![\w-])/(etc/goqueue|var/lib/goqueue|tmp)\b")
HEADING = "First steps, against one real node with the chart's configuration and secrets"


@dataclass
class Node:
    """`manifests` of the release it runs; `folder` is its root directory."""

    manifests: list[Json]
    folder: Path
    port: int

    def here(self, text: str) -> str:
        """Paths and addresses of a pod, as they are on this machine."""
        text = FOLDERS.sub(lambda found: f"{self.folder}{found[0]}", text)
        return text.replace("goqueue.queues.svc:8080", f"localhost:{self.port}")

    def secret(self, name: str, key: str) -> str:
        return base64.b64decode(one(self.manifests, "Secret", name)["data"][key]).decode()

    def run(self, script: str, **env: str) -> subprocess.CompletedProcess[str]:
        base = {"PATH": f"{PROGRAMS}:{os.environ['PATH']}", "HOME": str(self.folder), "LANG": "C"}
        return subprocess.run(
            ["/bin/sh", "-eu", "-c", self.here(script)],
            env={**base, **{name: self.here(value) for name, value in env.items()}},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


def write(folder: Path, volumes: list[Json], container: Json, manifests: list[Json]) -> None:
    """The Secrets that a container mounts, as files below `folder`."""
    by_name = {volume["name"]: volume for volume in volumes}
    for mount in container["volumeMounts"]:
        volume = by_name.get(mount["name"], {})
        sources = volume.get("projected", {}).get("sources") or [volume]
        for source in (source["secret"] for source in sources if "secret" in source):
            name = source.get("secretName") or source["name"]
            data = one(manifests, "Secret", name)["data"]
            items = source.get("items") or [{"key": key, "path": key} for key in data]
            for item in items:
                file = folder / mount["mountPath"][1:] / item["path"]
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(base64.b64decode(data[item["key"]]))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    manifests = render(VALUES)
    found = Node(manifests, tmp_path_factory.mktemp("pod"), 0)
    found.port, peer = free_ports(2)
    pod = one(manifests, "StatefulSet")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    write(found.folder, pod["volumes"], container, manifests)
    (found.folder / "tmp").mkdir()
    config = one(manifests, "ConfigMap")["data"]["goqueue.yaml"]
    config = config.replace("0.0.0.0:8080", f"127.0.0.1:{found.port}")
    config = re.sub(r"(0\.0\.0\.0|goqueue-0\.\S+):7000", f"127.0.0.1:{peer}", config)
    file = found.folder / "etc" / "goqueue" / "goqueue.yaml"
    file.write_text(found.here(config))
    log = (found.folder / "log").open("wb")
    command = [PROGRAMS / container["command"][0], *map(found.here, container["args"])]
    env = {"PATH": os.environ["PATH"], "GOQUEUE_BROKER_NODEID": "goqueue-0"}
    process = subprocess.Popen(command, env=env, stdout=log, stderr=log)
    try:
        eventually("the node is ready", lambda: is_ready(found, process), deadline_s=40)
        yield found
    finally:
        process.terminate()
        assert process.wait(20) == 0, (found.folder / "log").read_text()[-3000:]
        log.close()


def is_ready(node: Node, process: subprocess.Popen[bytes]) -> bool:
    """As the kubelet asks, without checking the certificate."""
    assert process.poll() is None, (node.folder / "log").read_text()[-3000:]
    probe = one(node.manifests, "StatefulSet")["spec"]["template"]["spec"]["containers"][0]
    asked = probe["readinessProbe"]["httpGet"]
    url = f"{asked['scheme'].lower()}://localhost:{node.port}{asked['path']}"
    unchecked = ssl.create_default_context()
    unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
    try:
        with urllib.request.urlopen(url, timeout=2, context=unchecked) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@pytest.mark.parametrize("name", ["cluster", "messages"])
def test_the_pods_of_helm_test_pass(name: str, node: Node, report: Report) -> None:
    pod = one(node.manifests, "Pod", f"goqueue-test-{name}")
    (container,) = pod["spec"]["containers"]
    write(node.folder, pod["spec"]["volumes"], container, node.manifests)
    env = {entry["name"]: entry["value"] for entry in container["env"] if entry["name"] != "HOME"}

    found = node.run(container["args"][0], **env)
    assert found.returncode == 0, found.stdout + found.stderr
    assert ("all is well" if name == "messages" else "1 nodes of 1") in found.stdout
    report.executed(
        HEADING,
        f"the script of the `helm test` pod {pod['metadata']['name']}, over HTTPS, with the key",
    )


def test_a_pod_of_helm_test_fails_where_nodes_are_missing(node: Node) -> None:
    pod = one(rendered("five nodes"), "Pod", "goqueue-test-cluster")
    (container,) = pod["spec"]["containers"]
    env = {entry["name"]: entry["value"] for entry in container["env"] if entry["name"] != "HOME"}

    found = node.run(container["args"][0], **env)
    assert found.returncode == 1 and "1 nodes of 5" in found.stdout


def test_what_the_notes_say_works(node: Node, report: Report) -> None:
    lines = [line.strip() for line in notes(VALUES).splitlines()]
    asked = [line for line in lines if line.startswith("goqueue-cli ")]
    exported = dict(
        line.removeprefix("export ").split("=", 1) for line in lines if line.startswith("export ")
    )

    assert exported.keys() == {"GOQUEUE_CA_FILE", "GOQUEUE_API_KEY", "GOQUEUE_SERVER"}
    assert exported["GOQUEUE_SERVER"] == "https://localhost:8080"
    env = {
        "GOQUEUE_CA_FILE": "/etc/goqueue/tls/ca.crt",
        "GOQUEUE_API_KEY": node.secret("goqueue-admin", "admin-key"),
        "GOQUEUE_SERVER": f"https://localhost:{node.port}",
    }
    assert len(asked) == 4
    for line in asked:
        found = node.run(line, **env)
        assert found.returncode == 0, (line, found.stdout, found.stderr)
    assert "ACKNOWLEDGED" in found.stdout
    report.executed(
        HEADING,
        "the commands of NOTES.txt: create a topic, produce, consume, trace",
    )


def test_nobody_comes_in_without_a_key(node: Node) -> None:
    env = {"GOQUEUE_CA_FILE": "/etc/goqueue/tls/ca.crt"}
    found = node.run(f"goqueue-cli --server https://localhost:{node.port} topic list", **env)

    assert found.returncode != 0 and "key" in (found.stdout + found.stderr)
