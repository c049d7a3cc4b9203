"""What the chart tells a node is what a node understands: its own loader reads it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from node.config.file import ConfigError, load_config
from node.config.node import NodeConfig
from tests.deploy.matrix import CASES
from tests.deploy.rendering import one, rendered
from tests.deploy.report import Report

Json = dict[str, Any]
KUBERNETES_TELLS = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


def environment(manifests: list[Json]) -> dict[str, str]:
    """What the kubelet makes of `env` in the first pod."""
    stateful = one(manifests, "StatefulSet")
    pods_own = {
        "metadata.name": f"{stateful['metadata']['name']}-0",
        "metadata.namespace": stateful["metadata"]["namespace"],
        "spec.nodeName": "machine-1",
    }
    container = stateful["spec"]["template"]["spec"]["containers"][0]
    found = dict(KUBERNETES_TELLS)
    for entry in container["env"]:
        if "valueFrom" in entry:
            found[entry["name"]] = pods_own[entry["valueFrom"]["fieldRef"]["fieldPath"]]
        else:
            found[entry["name"]] = re.sub(
                r"\$\((\w+)\)", lambda match: found[match[1]], entry["value"]
            )
    return found


def mounted(manifests: list[Json]) -> Json:
    """The files that nodes read."""
    volumes = one(manifests, "StatefulSet")["spec"]["template"]["spec"]["volumes"]
    name = next(volume["configMap"]["name"] for volume in volumes if "configMap" in volume)
    data: Json = one(manifests, "ConfigMap", name)["data"]
    return data


def loaded(manifests: list[Json], folder: Path) -> NodeConfig:
    """The node's configuration, its files below `folder`."""
    text = mounted(manifests)["goqueue.yaml"]
    for path in set(re.findall(r"/etc/goqueue/[\w./-]+", text)):
        (folder / path[1:]).parent.mkdir(parents=True, exist_ok=True)
        (folder / path[1:]).write_text("admin.long-enough-to-be-a-secret")
    file = folder / "goqueue.yaml"
    file.write_text(text.replace("/etc/goqueue/", f"{folder}/etc/goqueue/"))
    return load_config(str(file), env=environment(manifests))


@pytest.mark.parametrize("case", CASES)
def test_a_node_takes_its_configuration_without_a_warning(
    case: str, tmp_path: Path, report: Report
) -> None:
    found = loaded(rendered(case), tmp_path)

    asked_for = [
        warning for warning in found.warnings if "in the clear" in warning and case == "TLS off"
    ]
    assert list(found.warnings) == asked_for
    report.executed(
        "The chart",
        f"goqueue.yaml and the environment read by the node's own loader: {len(CASES)} cases",
    )


def test_a_node_listens_where_services_lead_and_others_look_for_it(tmp_path: Path) -> None:
    found = loaded(rendered("defaults"), tmp_path)
    services = [one(rendered("defaults"), "Service", name) for name in ("goqueue", HEADLESS)]

    assert found.node_id == "goqueue-0"
    assert (found.http.host, found.http.port) == (
        "0.0.0.0",
        services[0]["spec"]["ports"][0]["port"],
    )
    assert found.cluster.port == services[1]["spec"]["ports"][1]["port"]
    assert found.cluster.advertise == f"goqueue-0.{HEADLESS}.queues.svc.cluster.local:7000"
    assert found.http_url == f"https://goqueue-0.{HEADLESS}.queues.svc.cluster.local:8080"
    assert found.data_dir == "/var/lib/goqueue"


HEADLESS = "goqueue-headless"


def test_doors_are_locked_by_default(tmp_path: Path) -> None:
    found = loaded(rendered("defaults"), tmp_path)

    assert found.http.tls.enabled and found.cluster.tls.enabled and found.cluster.tls.ca_file
    assert found.auth.enabled and found.auth.admin_key_file
    assert not found.auth.metrics_anonymous
    assert len(found.cluster.secret) >= 8


def test_settings_of_the_config_value_arrive(tmp_path: Path) -> None:
    found = loaded(rendered("everything on"), tmp_path)

    assert found.topic_defaults.partitions == 12
    assert found.raft.copy_bytes_per_s == 50 << 20
    assert found.logging.level == "debug"


def test_founders_are_listed_where_nobody_can_be_asked(tmp_path: Path) -> None:
    found = loaded(rendered("no Kubernetes API"), tmp_path)

    assert set(found.cluster.peers) == {f"goqueue-{ordinal}" for ordinal in range(3)}
    assert not found.kubernetes.enabled


def test_the_command_is_one_that_the_package_installs() -> None:
    container = one(rendered("defaults"), "StatefulSet")["spec"]["template"]["spec"]["containers"][
        0
    ]
    scripts = (Path(__file__).parents[2] / "pyproject.toml").read_text()

    assert f'{container["command"][0]} = "cli.serve:main"' in scripts
    assert container["args"][0] == "--config"
    assert container["lifecycle"]["preStop"]["exec"]["command"] == ["goqueue", "pod-stop"]


def test_a_wrong_setting_would_be_found(tmp_path: Path) -> None:
    manifests = yaml.safe_load(yaml.safe_dump(rendered("defaults")))
    config = mounted(manifests)
    config["goqueue.yaml"] = config["goqueue.yaml"].replace("secretFile", "secretFiles")

    with pytest.raises(ConfigError, match="secretFiles"):
        loaded(manifests, tmp_path)
