"""What operators of monitoring, scaling, certificates and gateways read in the chart's objects."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import urlsplit

import yaml
from typer.testing import CliRunner

from cli.main import app
from node.http.groups.offsets import LagAnswer
from node.http.server.routes import ROUTES
from node.http.text.router import Router
from tests.deploy.rendering import one, render, rendered

Json = dict[str, Any]
RUNBOOKS = "https://wiki.example.com/g"


def generated(*words: str) -> str:
    found = CliRunner().invoke(app, ["generate", *words])
    assert found.exit_code == 0, found.output
    return found.stdout


def test_rules_are_those_that_the_command_line_generates() -> None:
    rules = one(rendered("monitoring on"), "PrometheusRule")
    made = yaml.safe_load(
        generated("prometheus-rules", "--format", "operator", "--runbooks", RUNBOOKS)
    )

    assert len(rules["spec"]["groups"]) > 5
    assert by_name(rules) == by_name(made)


def by_name(rules: Json) -> Json:
    return {group["name"]: group for group in rules["spec"]["groups"]}


def test_rules_may_be_added() -> None:
    extra = {"name": "mine", "rules": [{"record": "a", "expr": "1"}]}
    on = {"enabled": True, "extraGroups": [extra]}
    rules = one(render({"metrics": {"prometheusRule": on}}), "PrometheusRule")

    assert by_name(rules)["mine"] == extra


def test_dashboards_are_those_that_the_command_line_generates() -> None:
    made = {board["uid"]: board for board in json.loads(generated("grafana"))}
    found = {}
    for manifest in rendered("monitoring on"):
        if manifest["metadata"]["labels"].get("grafana_dashboard") == "1":
            (text,) = manifest["data"].values()
            board = json.loads(text)
            found[board["uid"]] = board

    assert len(found) == 6
    assert found == made


def test_targets_have_the_labels_that_dashboards_and_alerts_ask_for() -> None:
    for kind, key in (("ServiceMonitor", "endpoints"), ("PodMonitor", "podMetricsEndpoints")):
        (endpoint,) = one(rendered("monitoring on"), kind)["spec"][key]
        labels = {row.get("targetLabel"): row for row in endpoint["relabelings"]}

        assert labels["job"]["replacement"] == "goqueue"
        assert labels["cluster"]["replacement"] == "goqueue"
        assert labels["instance"]["sourceLabels"] == ["__meta_kubernetes_pod_name"]
        assert endpoint["scheme"] == "https"
        assert endpoint["authorization"]["credentials"] == {
            "name": "prometheus-key",
            "key": "token",
        }
    (endpoint,) = one(rendered("monitoring on"), "ServiceMonitor")["spec"]["endpoints"]
    assert endpoint["tlsConfig"]["ca"]["secret"] == {"name": "goqueue-tls", "key": "ca.crt"}
    assert endpoint["tlsConfig"]["serverName"] == "goqueue.queues.svc"


def test_consumers_are_scaled_by_a_route_and_a_field_that_the_node_has() -> None:
    scaled = [m for m in rendered("everything on") if m["kind"] == "ScaledObject"]
    fields = []
    for manifest in scaled:
        (trigger,) = manifest["spec"]["triggers"]
        url = urlsplit(trigger["metadata"]["url"])
        route, _ = Router(ROUTES).match("GET", url.path)
        assert route.response is LagAnswer
        fields.append(trigger["metadata"]["valueLocation"])
        assert float(trigger["metadata"]["targetValue"]) > 0
        assert (
            trigger["authenticationRef"]["name"]
            == one(rendered("everything on"), "TriggerAuthentication")["metadata"]["name"]
        )

    assert fields == ["total_lag", "max_lag_seconds"]
    assert set(fields) <= set(LagAnswer.__struct_fields__)
    assert [m["spec"]["scaleTargetRef"]["name"] for m in scaled] == ["billing", "mailer"]
    assert [m["spec"]["maxReplicaCount"] for m in scaled] == [10, 3]


def test_a_certificate_of_cert_manager_goes_where_nodes_look_for_it() -> None:
    manifests = rendered("cert-manager")
    spec = one(manifests, "Certificate")["spec"]
    volumes = one(manifests, "StatefulSet")["spec"]["template"]["spec"]["volumes"]
    mounted = next(volume["secret"]["secretName"] for volume in volumes if volume["name"] == "tls")

    assert spec["secretName"] == mounted
    assert spec["issuerRef"] == {
        "name": "letsencrypt",
        "kind": "ClusterIssuer",
        "group": "cert-manager.io",
    }
    assert {"localhost", "goqueue.queues.svc"} <= set(spec["dnsNames"])
    hours = {name: int(spec[name].removesuffix("h")) for name in ("duration", "renewBefore")}
    assert hours["renewBefore"] < hours["duration"]


def test_routes_lead_to_the_port_of_the_service() -> None:
    manifests = rendered("everything on")
    service = one(manifests, "Service", "goqueue")
    ports = {port["name"]: port["port"] for port in service["spec"]["ports"]}
    backends = [
        backend
        for kind in ("HTTPRoute", "TLSRoute")
        for rule in one(manifests, kind)["spec"]["rules"]
        for backend in rule["backendRefs"]
    ]
    ingress = one(manifests, "Ingress", "goqueue")["spec"]["rules"][0]["http"]["paths"][0][
        "backend"
    ]
    policy = one(manifests, "BackendTLSPolicy")["spec"]

    assert backends == [{"name": "goqueue", "port": ports["https"]}] * 2
    assert ingress["service"] == {"name": "goqueue", "port": {"name": "https"}}
    assert policy["targetRefs"][0]["sectionName"] in ports
    assert policy["validation"]["hostname"] == "goqueue.queues.svc"
    for kind in ("HTTPRoute", "TLSRoute"):
        assert one(manifests, kind)["spec"]["parentRefs"][0]["name"] == "public"
    notes = one(manifests, "Ingress", "goqueue")["metadata"]["annotations"]
    assert notes["nginx.ingress.kubernetes.io/backend-protocol"] == "HTTPS"


def test_the_archive_is_a_job_of_the_pipeline() -> None:
    spec = one(rendered("everything on"), "CronJob")["spec"]
    pod = spec["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]

    assert spec["concurrencyPolicy"] == "Forbid"
    assert container["command"] == ["goqueue-pipeline", "archive"]
    assert "s3a://archives/goqueue" in container["args"]
    assert re.search(r"archive-key", json.dumps(pod["volumes"]))
    assert [m["kind"] for m in rendered("defaults")].count("CronJob") == 0
