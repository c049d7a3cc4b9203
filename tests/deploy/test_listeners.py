"""Listeners for other protocols: what is opened, led to and guarded where they are wanted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.deploy.rendering import one, render
from tests.deploy.test_policies import node
from tests.deploy.test_settings import loaded

ALL = {"service": {"grpcEnabled": True, "h2Enabled": True, "redisEnabled": True}}
PORTS = {"grpc": 9000, "h2": 8443, "redis": 6379}


def ports_of(manifests: list[dict[str, Any]]) -> dict[str, Any]:
    """Of the clients' Service: each port by what it leads to."""
    return {
        port["targetPort"]: port for port in one(manifests, "Service", "goqueue")["spec"]["ports"]
    }


def guarded(manifests: list[dict[str, Any]]) -> set[object]:
    rules = one(manifests, "NetworkPolicy")["spec"]["ingress"]
    return {port["port"] for rule in rules for port in rule["ports"]}


def test_nothing_is_opened_that_is_not_wanted(tmp_path: Path) -> None:
    manifests = render({})

    assert set(ports_of(manifests)) == {"client"}
    assert {port["name"] for port in node(manifests)["ports"]} == {"client", "peer"}
    assert guarded(manifests) == {"client", "peer"}
    assert list(loaded(manifests, tmp_path).listeners.each()) == []


def test_each_that_is_wanted_has_its_port_everywhere(tmp_path: Path) -> None:
    manifests = render(ALL)

    led_to = ports_of(manifests)
    assert {name: led_to[name]["port"] for name in PORTS} == PORTS
    assert led_to["grpc"]["appProtocol"] == led_to["h2"]["appProtocol"] == "https"
    assert led_to["redis"]["name"] == "tcp-redis"
    container = {port["name"]: port["containerPort"] for port in node(manifests)["ports"]}
    assert {name: container[name] for name in PORTS} == PORTS
    assert guarded(manifests) == {"client", "peer", *PORTS}
    found = {name: listener.port for name, listener in loaded(manifests, tmp_path).listeners.each()}
    assert found == PORTS


def test_without_tls_gateways_are_told_that_it_is_http_2_in_the_clear() -> None:
    led_to = ports_of(render({**ALL, "tls": {"enabled": False}}))

    assert led_to["grpc"]["appProtocol"] == "kubernetes.io/h2c"


def test_routes_to_grpc_open_it(tmp_path: Path) -> None:
    parents = [{"name": "public"}]
    by_ingress = render({"grpcIngress": {"enabled": True, "className": "nginx"}})
    by_gateway = render({"gateway": {"grpcRoute": {"enabled": True, "parentRefs": parents}}})

    ingress, route = one(by_ingress, "Ingress"), one(by_gateway, "GRPCRoute")
    assert ingress["metadata"]["annotations"] == {
        "nginx.ingress.kubernetes.io/backend-protocol": "GRPCS"
    }
    (rule,) = ingress["spec"]["rules"]
    assert rule["http"]["paths"][0]["backend"]["service"]["port"] == {"name": "grpc"}
    assert route["spec"]["rules"][0]["backendRefs"] == [{"name": "goqueue", "port": 9000}]
    for manifests in (by_ingress, by_gateway):
        assert set(ports_of(manifests)) == {"client", "grpc"}
        assert "grpc" in guarded(manifests)
        assert [name for name, _ in loaded(manifests, tmp_path).listeners.each()] == ["grpc"]
