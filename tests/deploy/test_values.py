"""Every value is described, has an effect and is known to the schema; all else is refused."""

from __future__ import annotations

import copy
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import helm_python
import pytest
import yaml

from scripts.chart_docs import CHART, README, VALUES, sections
from tests.deploy.matrix import CASES, EVERYTHING, NO_KEYS
from tests.deploy.rendering import one, render, rendered, rendered_texts

Json = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]
TEMPLATES = {
    path.relative_to(CHART): path.read_text()
    for path in sorted((CHART / "templates").rglob("*"))
    if path.is_file()
}
DESCRIBED = [value for section in sections(VALUES.read_text()) for value in section.values]


def test_the_readme_and_the_schema_are_made_from_the_values() -> None:
    check = [sys.executable, str(ROOT / "scripts" / "chart_docs.py"), "--check"]
    found = subprocess.run(check, capture_output=True, text=True, check=False)

    assert found.returncode == 0, found.stdout


QUICK: Json = {**EVERYTHING, "grafana": {}}
BASES: tuple[Json, ...] = (
    QUICK,
    {**QUICK, "podAntiAffinity": {}, "service": {"type": "NodePort"}, "image": {}},
    {**CASES["cert-manager"], "diagnosticMode": {"enabled": True}},
    CASES["existing secrets"],
    {**QUICK, "auth": {"insecureOpen": True}},
    {**QUICK, "persistence": {}, "archive": {}, "podDisruptionBudget": {"minAvailable": ""}},
    CASES["monitoring on"],
)
"""Cases in which a value may be in force."""
SAMPLES: Json = {
    "config": {"raft": {"copyRate": "1MiB"}},
    "listenAddress": "[::]",
    "image.digest": "sha256:" + "1" * 64,
    "fullnameOverride": "another",
    "updateStrategy": {"type": "OnDelete"},
    "imagePullSecrets": [{"name": "other"}],
    "global.imagePullSecrets": [{"name": "other"}],
    "service.loadBalancerSourceRanges": ["192.0.2.0/24"],
    "ingress.hosts": [{"host": "other.example.com"}],
    "ingress.tls": [{"secretName": "other"}],
    "resources": {"limits": {"cpu": "3"}},
    "archive.resources": {"limits": {"cpu": "3"}},
    "tests.resources": {"limits": {"cpu": "3"}},
    "podSecurityContext": {"runAsUser": 1234},
    "securityContext": {"runAsUser": 1234},
    "affinity": {"nodeAffinity": {}},
    "topologySpreadConstraints": [{"topologyKey": "rack"}],
    "tls.extraIpAddresses": ["192.0.2.9"],
    "keda.consumers": [{"name": "x", "group": "y"}],
    "metrics.serviceMonitor.credentials": {"key": "other"},
    "metrics.podMonitor.credentials": {"key": "other"},
    "metrics.prometheusRule.extraGroups": [{"name": "mine", "rules": []}],
    "extraDeploy": [{"kind": "Other"}],
    "extraObjects": [{"kind": "Other"}],
    "tracing": {"otlp": {"enabled": True}},
    "security.tls": {"existingSecret": "other"},
    "security.clusterTls": {"existingSecret": "other"},
    "security.auth": {"existingSecret": "other"},
    "keda.unsafeSsl": True,
    "podAntiAffinity.weight": 50,
    "persistence.storageClass": "-",
}
ONE_WORD = {"persistence.whenScaled"}
"""Values that take their default only: any other word is refused, with the reason."""
RANDOM = re.compile(r": [A-Za-z0-9+/=]{40,}$|valid-until: .*$", re.MULTILINE)


@cache
def texts_of(base: int) -> dict[str, str]:
    return told(BASES[base])


def told(values: Json) -> dict[str, str]:
    """What templates give, without what is new each time."""
    return {name: RANDOM.sub("", text) for name, text in rendered_texts(values).items()}


def changed(value: Any, base: Json) -> Json:
    """`base` with another value in that place."""
    now: Any = base
    for name in value.path:
        now = now.get(name, {}) if isinstance(now, dict) else {}
    default = value.default if now in ({}, None) else now
    sample = SAMPLES.get(value.name)
    if sample is None and "enum" in value.directives:
        sample = next(word for word in value.directives["enum"] if word not in ('""', default))
    elif sample is None and "probe" in value.directives:
        sample = {"periodSeconds": 77}
    elif sample is None and isinstance(default, bool):
        sample = not default
    elif sample is None and isinstance(default, int):
        sample = default + 1
    elif sample is None and isinstance(default, str):
        sample = f"{default}x"
    elif sample is None and isinstance(default, list):
        sample = ["other"] if not default or isinstance(default[0], str) else [{"name": "other"}]
    elif sample is None:
        sample = {"other": "x"}
    found: Json = copy.deepcopy(base)
    at = found
    for name in value.path[:-1]:
        at = at.setdefault(name, {})
    at[value.path[-1]] = sample
    return found


@pytest.mark.parametrize("value", DESCRIBED, ids=lambda value: value.name)
def test_a_value_says_what_it_is_for_and_changes_what_is_made(value: Any) -> None:
    assert len(value.text) > 8 and value.text.removesuffix(" [seconds]").endswith("."), value.text
    if value.name in ONE_WORD:
        with pytest.raises(helm_python.HelmRenderError, match=value.name):
            render(changed(value, {}))
        return
    refusals = []
    for number, base in enumerate(BASES):
        try:
            if told(changed(value, base)) != texts_of(number):
                return
        except helm_python.HelmError as error:
            refusals.append(str(error))

    pytest.fail(f"{value.name} changes nothing: {refusals}")


def test_values_that_templates_name_exist() -> None:
    tree = yaml.safe_load(VALUES.read_text())
    unknown = set()
    for name, text in TEMPLATES.items():
        for found in re.findall(r"\$?\.Values\.([\w.]+)", text):
            node: Any = tree
            for part in found.rstrip(".").split("."):
                if isinstance(node, dict) and not node:
                    break
                if not isinstance(node, dict) or part not in node:
                    unknown.add(f"{name}: {found}")
                    break
                node = node[part]

    assert unknown == set()


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"replicas": 5}, "replicas"),
        ({"image": {"tga": "1"}}, "tga"),
        ({"replicaCount": 0}, "replicaCount"),
        ({"replicaCount": 33}, "replicaCount"),
        ({"replicaCount": "3"}, "replicaCount"),
        ({"service": {"type": "External"}}, "service/type"),
        ({"service": {"httpPort": 70000}}, "httpPort"),
        ({"fullnameOverride": "Not_A_Name"}, "fullnameOverride"),
        ({"config": {"brokr": {}}}, "brokr"),
        ({"config": {"raft": {"copyRates": "1MiB"}}}, "copyRates"),
        ({"config": {"raft": {"heartbeat": 150}}}, "heartbeat"),
        ({"config": {"defaults": {"topic": {"durability": "none"}}}}, "durability"),
        ({"keda": {"consumers": [{"name": "a"}]}}, "group"),
        ({"livenessProbe": {"exec": {"command": ["true"]}}}, "exec"),
        ({"autoscale": {"enabled": True}}, "autoscale"),
        ({"security": {"auth": {"rootKey": "x"}}}, "rootKey"),
    ],
)
def test_what_is_not_a_value_is_refused_by_name(values: Json, told: str) -> None:
    with pytest.raises(helm_python.HelmValuesError, match=told):
        render(values)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"config": {"broker": {"nodeId": "x"}}}, "config.broker.nodeId is decided by"),
        ({"config": {"tls": {"enabled": False}}}, "config.tls is decided by tls"),
        ({"config": {"auth": {"rootKey": "x"}}}, "auth.existingSecret"),
        ({"config": {"cluster": {"secret": "x"}}}, "clusterSecret"),
        ({"config": {"kubernetes": {"enabled": False}}}, "kubernetes.enabled"),
        ({"tls": {"certManager": {"enabled": True}}}, "issuerRef.name is needed"),
        ({"gateway": {"tlsRoute": {"enabled": True}}}, "tlsRoute.hostnames is needed"),
        ({"archive": {"enabled": True}}, "archive.destination is needed"),
        ({"keda": {"consumers": [{"name": "a", "group": "a"}]}}, "keda.existingSecret is needed"),
        ({"service": {"internalPort": 8080}}, "must differ"),
        ({"auth": {"enabled": False}}, "auth.insecureOpen: true"),
        ({"config": {"auth": {"insecureOpen": True}}}, "is decided by auth.insecureOpen"),
        (
            {"persistence": {"whenScaled": "Delete"}},
            "would delete the volumes of nodes that were not drained",
        ),
        (
            {"metrics": {"serviceMonitor": {"enabled": True}}},
            "metrics.serviceMonitor.credentials is needed",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_do_instead(values: Json, told: str) -> None:
    with pytest.raises(helm_python.HelmRenderError) as found:
        render(values)

    assert told in str(found.value)


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(helm_python.HelmRenderError) as found:
        render({"archive": {"enabled": True}, "service": {"internalPort": 8080}})

    assert "archive.destination" in str(found.value) and "must differ" in str(found.value)


def test_goqueues_own_names_mean_what_they_mean_there() -> None:
    manifests = rendered("GoQueue's own values")
    pod = one(manifests, "StatefulSet")["spec"]["template"]["spec"]
    secrets = {v["secret"]["secretName"] for v in pod["volumes"] if "secret" in v}

    assert pod["containers"][0]["image"] == "ghcr.io/example/goqueue:v1"
    assert secrets == {"theirs"}
    assert "their-key" in str(pod["volumes"])
    service = one(manifests, "Service", "goqueue")["spec"]
    assert service["type"] == "NodePort" and service["ports"][0]["nodePort"] == 30080
    assert one(manifests, "PodDisruptionBudget")["spec"]["minAvailable"] == 2
    claim = one(manifests, "StatefulSet")["spec"]["volumeClaimTemplates"][0]["spec"]
    assert claim["storageClassName"] == "gp3"
    assert claim["resources"]["requests"]["storage"] == "20Gi"


FILES = {"goqueue.yaml", "config.example.yaml", "ca.crt", "tls.crt", "tls.key", "id.secret"}


def test_the_readme_names_only_values_that_there_are() -> None:
    tree = yaml.safe_load(VALUES.read_text())
    text = README.read_text().partition("## GoQueue's own values")[0]
    for example in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL):
        render({**yaml.safe_load(example), "auth": NO_KEYS})
    for name in set(re.findall(r"`([a-z]\w+(?:\.\w+)+)(?:: [^`]*)?`", text)) - FILES:
        node: Any = tree
        for part in name.split("."):
            assert isinstance(node, dict) and part in node, name
            node = node[part]


def test_the_chart_is_of_the_programs_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert chart["appVersion"] == project["version"]
