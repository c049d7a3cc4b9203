"""NOTES.txt names what there is, and warns of what is worth it."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
import yaml

from tests.deploy.matrix import NO_KEYS, PUBLISHED
from tests.deploy.rendering import notes, one, rendered

Json = dict[str, Any]


def test_the_notes_name_objects_that_there_are() -> None:
    text = notes({})
    secrets = set(re.findall(r"get secret (\S+)", text))
    paths = re.findall(r"get secret (\S+) -o jsonpath='\{\.data\.(.+?)\}'", text)

    assert secrets == {"goqueue-tls", "goqueue-admin"}
    for name, key in paths:
        assert key.replace("\\.", ".") in one(rendered("defaults"), "Secret", name)["data"]
    assert "statefulset/goqueue" in text and "service/goqueue 8080" in text
    for line in text.splitlines():
        if line.startswith("    ") and not line.lstrip().startswith(("http", "(")):
            shlex.split(line)


@pytest.mark.parametrize(
    ("values", "warned"),
    [
        ({"replicaCount": 1}, "One node"),
        ({"replicaCount": 2}, "2 nodes survive no more deaths than 1"),
        ({"replicaCount": 4}, "4 nodes survive no more deaths than 3"),
        ({"persistence": {"enabled": False}}, "persistence.enabled is false"),
        ({"tls": {"enabled": False}}, "in the clear"),
        ({"auth": NO_KEYS}, "may do everything"),
        ({"peerTls": {"enabled": False}}, "between nodes in the clear"),
        ({"networkPolicy": {"enabled": False}}, "networkPolicy.enabled is false"),
        ({"kubernetes": {"enabled": False}}, "by hand"),
        ({"config": {"cluster": {"quorumSize": 2}}}, "has no effect"),
        ({"diagnosticMode": {"enabled": True}}, "run no node"),
        ({}, "has no registry"),
    ],
)
def test_the_notes_warn(values: Json, warned: str) -> None:
    text = notes(values).partition("\nMind:\n")[2]

    assert warned in text


def test_nothing_is_warned_of_without_a_reason() -> None:
    assert "Mind:" not in notes({"image": {"registry": "registry.example.com"}})


def test_of_the_published_charts_values_those_are_named_that_change_nothing() -> None:
    told = re.findall(r"  - (\S+) has no effect: \w", notes(PUBLISHED).partition("\nMind:\n")[2])

    assert sorted(told) == [
        "alertmanager",
        "autoscaling",
        "config.cluster.enabled",
        "config.cluster.quorumSize",
        "livenessProbe.httpGet",
        "metrics.prometheusRule.rules",
        "metrics.serviceMonitor.path",
        "persistence.existingClaim",
        "prometheus",
        "readinessProbe.httpGet",
        "security.tls.minVersion",
        "security.tls.selfSigned",
        "startupProbe.httpGet",
        "tracing.fileExport",
        "tracing.otlp.batchSize",
        "tracing.otlp.insecure",
        "tracing.otlp.protocol",
        "tracing.ringBufferCapacity",
        "tracing.samplingRate",
    ]


def test_of_the_published_charts_values_the_others_are_what_they_are_there() -> None:
    manifests = rendered("all of GoQueue's values")
    config = yaml.safe_load(one(manifests, "ConfigMap", "goqueue")["data"]["goqueue.yaml"])

    assert config["tracing"]["otlp"] == {
        "enabled": True,
        "endpoint": "http://collector:4318",
        "headers": {"a": "b"},
        "flushInterval": "5s",
        "serviceName": "theirs",
    }
    kinds = [found["kind"] for found in manifests]
    assert "ServiceMonitor" in kinds and "PrometheusRule" in kinds
    assert not [found for found in manifests if "grafana_dashboard" in str(found["metadata"])]
    probe = one(manifests, "StatefulSet")["spec"]["template"]["spec"]["containers"][0]
    assert probe["livenessProbe"]["httpGet"]["path"] == "/livez"
    assert probe["livenessProbe"]["initialDelaySeconds"] == 30
