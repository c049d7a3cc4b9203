"""deploy/kind and deploy/benchmark fit the chart, Kubernetes, and a node."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from base64 import b64decode
from pathlib import Path
from typing import Any

import yaml
from cryptography import x509

from tests.cluster.processes import ROOT, Cluster
from tests.deploy.rendering import one, render
from tests.deploy.report import Report
from tests.deploy.validation import problems, versions

Json = dict[str, Any]
KIND, BENCHMARK = ROOT / "deploy/kind", ROOT / "deploy/benchmark"
LOAD_S = 60


def cluster() -> Json:
    found: Json = yaml.safe_load((KIND / "cluster.yaml").read_text())
    return found


def values() -> Json:
    found: Json = yaml.safe_load((KIND / "values.yaml").read_text())
    return found


def job() -> Json:
    found: Json = yaml.safe_load((BENCHMARK / "job.yaml").read_text())
    return found


def test_there_are_three_workers_each_in_a_zone_of_its_own() -> None:
    workers = [node for node in cluster()["nodes"] if node["role"] == "worker"]

    assert len({node["labels"]["topology.kubernetes.io/zone"] for node in workers}) == 3
    assert one(render(values()), "StatefulSet")["spec"]["replicas"] == len(workers) == 3
    assert "replicaCount" not in values(), "a second deployment would undo what was scaled up"


def test_the_port_of_this_machine_leads_to_the_clients_service() -> None:
    (ports,) = [node["extraPortMappings"] for node in cluster()["nodes"] if "labels" not in node]
    service = one(render(values()), "Service", "goqueue")

    assert service["spec"]["type"] == "NodePort"
    assert [port["nodePort"] for port in service["spec"]["ports"]] == [ports[0]["containerPort"]]
    assert ports[0]["listenAddress"] == "127.0.0.1"
    script = (ROOT / "deploy/deploy.sh").read_text()
    assert f"KIND_PORT={ports[0]['hostPort']}\n" in script


def test_the_certificate_is_good_for_localhost() -> None:
    secret = one(render(values()), "Secret", "goqueue-tls")
    certificate = x509.load_pem_x509_certificate(b64decode(secret["data"]["tls.crt"]))
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value

    assert "localhost" in names.get_values_for_type(x509.DNSName)


def test_machines_never_pull_what_was_loaded_into_them() -> None:
    pod = one(render(values()), "StatefulSet")["spec"]["template"]["spec"]

    assert {box["imagePullPolicy"] for box in pod["containers"]} == {"Never"}


def test_the_benchmarks_job_is_valid_in_every_version(report: Report) -> None:
    for version in versions():
        assert list(problems(job(), version)) == [], version
    report.executed("deploy/benchmark", f"job.yaml against the schemas of {', '.join(versions())}")


def test_the_benchmarks_job_finds_the_secrets_and_the_service_of_the_chart() -> None:
    manifests = render({}, namespace="NAMESPACE")
    pod = job()["spec"]["template"]["spec"]

    for volume in pod["volumes"]:
        if "secret" in volume:
            secret = one(manifests, "Secret", volume["secret"]["secretName"])
            assert {item["key"] for item in volume["secret"]["items"]} <= secret["data"].keys()
    (server,) = [
        one["value"] for one in pod["containers"][0]["env"] if one["name"] == "GOQUEUE_SERVER"
    ]
    service = one(manifests, "Service", "goqueue")
    assert server == f"https://goqueue.NAMESPACE.svc:{service['spec']['ports'][0]['port']}"


def test_the_benchmark_reads_back_all_that_a_node_acknowledged(
    tmp_path: Path, report: Report
) -> None:
    with Cluster(tmp_path, 1) as nodes:
        nodes.start()
        done = subprocess.run(
            [sys.executable, str(BENCHMARK / "load.py"), "--seconds", "0.5", "--connections", "2"],
            env={**os.environ, "GOQUEUE_SERVER": nodes.nodes[0].url},
            capture_output=True,
            text=True,
            timeout=LOAD_S,
        )

    assert done.returncode == 0, done.stderr
    published = re.search(r"published (\d+) messages", done.stdout)
    found = re.search(r"read back (\d+) messages", done.stdout)
    assert published is not None and found is not None
    assert int(published[1]) == int(found[1]) > 0
    report.executed("deploy/benchmark", "load.py against one real node: all read back")
