"""What holds for every pod, service and secret, whatever the values."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from node.http.server.routes import ROUTES
from tests.deploy.matrix import CASES
from tests.deploy.rendering import one, render, rendered

Json = dict[str, Any]
WRITABLE = {"data", "tmp", "spool"}
SECRET_ENV = re.compile(r"(SECRET|PASSWORD|TOKEN|API_KEY|PRIVATE)")
CASE = pytest.mark.parametrize("case", CASES)


def pods(manifests: list[Json]) -> Iterator[tuple[str, Json]]:
    """Each pod's kind and name, and its `metadata` and `spec`."""
    for manifest in manifests:
        name = f"{manifest['kind']} {manifest['metadata']['name']}"
        if manifest["kind"] == "Pod":
            yield name, manifest
        elif manifest["kind"] == "StatefulSet":
            yield name, manifest["spec"]["template"]
        elif manifest["kind"] == "CronJob":
            yield name, manifest["spec"]["jobTemplate"]["spec"]["template"]


def containers(manifests: list[Json]) -> Iterator[tuple[str, Json, Json]]:
    """Each container's name, its pod's spec, and itself."""
    for name, pod in pods(manifests):
        spec = pod["spec"]
        for container in [*spec.get("initContainers", []), *spec["containers"]]:
            yield f"{name} {container['name']}", spec, container


def node(manifests: list[Json]) -> Json:
    found: Json = one(manifests, "StatefulSet")["spec"]["template"]["spec"]["containers"][0]
    return found


@CASE
def test_no_container_runs_as_root_or_can_become_more(case: str) -> None:
    checked = 0
    for name, pod, container in containers(rendered(case)):
        own, whole = container["securityContext"], pod["securityContext"]
        assert whole["runAsNonRoot"] is True and whole["runAsUser"] > 0, name
        assert whole["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert own["allowPrivilegeEscalation"] is False, name
        assert own["capabilities"] == {"drop": ["ALL"]}, name
        assert "privileged" not in own, name
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys(), name
        checked += 1

    assert checked >= 3


@CASE
def test_no_container_can_write_but_to_its_volume_and_tmp(case: str) -> None:
    for name, pod, container in containers(rendered(case)):
        assert container["securityContext"]["readOnlyRootFilesystem"] is True, name
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        for mount in container["volumeMounts"]:
            assert mount.get("readOnly") or mount["name"] in WRITABLE, (name, mount)
            assert "hostPath" not in volumes.get(mount["name"], {}), name


@CASE
def test_every_container_says_what_it_needs_and_may_use(case: str) -> None:
    for name, _, container in containers(rendered(case)):
        for kind in ("requests", "limits"):
            assert container["resources"][kind].keys() >= {"cpu", "memory"}, (name, kind)


@CASE
def test_no_secret_is_in_an_environment_or_a_config_map(case: str) -> None:
    manifests = rendered(case)
    secrets = {
        base64.b64decode(value).decode()
        for manifest in manifests
        if manifest["kind"] == "Secret"
        for value in manifest["data"].values()
    }
    elsewhere = json.dumps([one for one in manifests if one["kind"] != "Secret"])

    assert [secret[:8] for secret in secrets if json.dumps(secret)[1:-1] in elsewhere] == []
    for name, _, container in containers(manifests):
        named = [entry["name"] for entry in container.get("env", [])]
        assert [entry for entry in named if SECRET_ENV.search(entry)] == [], name


@CASE
def test_secrets_are_mounted_as_files_that_only_the_group_reads(case: str) -> None:
    for name, pod in pods(rendered(case)):
        for volume in pod["spec"]["volumes"]:
            for kind in ("secret", "projected"):
                assert volume.get(kind, {"defaultMode": 0o440})["defaultMode"] == 0o440, name
        assert pod["spec"]["securityContext"]["fsGroup"] > 0, name


@CASE
def test_selectors_choose_the_nodes_and_only_them(case: str) -> None:
    manifests = rendered(case)
    labels = {name: pod["metadata"]["labels"] for name, pod in pods(manifests)}
    stateful = one(manifests, "StatefulSet")
    selectors = {"StatefulSet": stateful["spec"]["selector"]["matchLabels"]}
    for manifest in manifests:
        if manifest["kind"] == "Service":
            selectors[f"Service {manifest['metadata']['name']}"] = manifest["spec"]["selector"]
        elif manifest["kind"] in ("PodDisruptionBudget", "PodMonitor"):
            selectors[manifest["kind"]] = manifest["spec"]["selector"]["matchLabels"]
        elif manifest["kind"] == "NetworkPolicy":
            selectors["NetworkPolicy"] = manifest["spec"]["podSelector"]["matchLabels"]
    spread = stateful["spec"]["template"]["spec"]["topologySpreadConstraints"]
    selectors |= {
        f"spread {n}": one["labelSelector"]["matchLabels"] for n, one in enumerate(spread)
    }

    assert len(selectors) >= 5
    for name, selector in selectors.items():
        chosen = {pod for pod, has in labels.items() if selector.items() <= has.items()}
        assert chosen == {f"StatefulSet {stateful['metadata']['name']}"}, name


@CASE
def test_monitors_choose_the_headless_service_alone(case: str) -> None:
    manifests = rendered(case)
    services = [manifest for manifest in manifests if manifest["kind"] == "Service"]
    for monitor in (manifest for manifest in manifests if manifest["kind"] == "ServiceMonitor"):
        selector = monitor["spec"]["selector"]["matchLabels"].items()
        chosen = [s for s in services if selector <= s["metadata"]["labels"].items()]
        assert [service["spec"].get("clusterIP") for service in chosen] == ["None"]
        ports = {port["name"] for port in chosen[0]["spec"]["ports"]}
        assert {endpoint["port"] for endpoint in monitor["spec"]["endpoints"]} <= ports


@CASE
def test_ports_are_named_and_named_ports_exist(case: str) -> None:
    manifests = rendered(case)
    own = {port["name"] for port in node(manifests)["ports"]}
    for manifest in manifests:
        if manifest["kind"] == "Service":
            assert {port["targetPort"] for port in manifest["spec"]["ports"]} <= own
            assert all(port["name"] for port in manifest["spec"]["ports"])
        elif manifest["kind"] == "NetworkPolicy":
            rules = manifest["spec"]["ingress"]
            named = {port["port"] for rule in rules for port in rule["ports"]}
            assert {port for port in named if isinstance(port, str)} <= own


@CASE
def test_only_nodes_reach_the_peers_port(case: str) -> None:
    manifests = rendered(case)
    policy = one(manifests, "NetworkPolicy")["spec"]
    to_peers = [r for r in policy["ingress"] if {"port": "peer"} in r["ports"]]

    assert "Ingress" in policy["policyTypes"]
    assert [rule["from"] for rule in to_peers] == [[{"podSelector": policy["podSelector"]}]]
    client = next(m for m in manifests if m["kind"] == "Service" and "clusterIP" not in m["spec"])
    assert "peer" not in {port["targetPort"] for port in client["spec"]["ports"]}


@CASE
def test_probes_ask_routes_of_the_node_on_a_port_it_has(case: str) -> None:
    routes = {route.path for route in ROUTES if route.method == "GET"}
    container = node(rendered(case))
    probes = [value for key, value in container.items() if key.endswith("Probe")]

    assert len(probes) == (0 if case == "diagnostic mode" else 3)
    for probe in probes:
        asked = probe["httpGet"]
        assert asked["path"] in routes
        assert asked["port"] in {port["name"] for port in container["ports"]}


@CASE
def test_every_volume_that_is_mounted_is_there_and_each_is_mounted(case: str) -> None:
    manifests = rendered(case)
    claims = one(manifests, "StatefulSet")["spec"].get("volumeClaimTemplates", [])
    for name, pod in pods(manifests):
        spec = pod["spec"]
        there = {volume["name"] for volume in spec["volumes"]}
        if name.startswith("StatefulSet"):
            there |= {claim["metadata"]["name"] for claim in claims}
        used = {mount["name"] for one in spec["containers"] for mount in one["volumeMounts"]}
        assert used == there, name


@CASE
def test_secrets_and_accounts_that_pods_name_are_made_or_given(case: str) -> None:
    manifests = rendered(case)
    made = {(manifest["kind"], manifest["metadata"]["name"]) for manifest in manifests}
    made |= {
        ("Secret", manifest["spec"]["secretName"])
        for manifest in manifests
        if manifest["kind"] == "Certificate"
    }
    given = set(re.findall(r'"existingSecret": "([^"]+)"', json.dumps(CASES[case])))
    for name, pod in pods(manifests):
        text = json.dumps(pod["spec"]["volumes"])
        named = set(re.findall(r'"secretName": "([^"]+)"', text))
        named |= {
            source["secret"]["name"]
            for volume in pod["spec"]["volumes"]
            for source in volume.get("projected", {"sources": []})["sources"]
        }
        assert {n for n in named if ("Secret", n) not in made} <= given, name
        account = pod["spec"].get("serviceAccountName")
        assert account is None or ("ServiceAccount", account) in made, name


@CASE
def test_only_nodes_have_a_token_and_only_where_they_use_it(case: str) -> None:
    manifests = rendered(case)
    uses = CASES[case].get("kubernetes", {}).get("enabled", True)
    for name, pod in pods(manifests):
        is_node = name.startswith("StatefulSet")
        assert pod["spec"]["automountServiceAccountToken"] is (is_node and uses), name


def test_nodes_may_do_what_they_do_and_no_more() -> None:
    manifests = rendered("defaults")
    rules = {
        (group, resource): (set(rule["verbs"]), rule.get("resourceNames"))
        for kind in ("Role", "ClusterRole")
        for rule in one(manifests, kind)["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    set_name = one(manifests, "StatefulSet")["metadata"]["name"]
    own_pods = [f"{set_name}-{ordinal}" for ordinal in range(32)]

    assert rules == {
        ("apps", "statefulsets"): ({"get", "list", "watch"}, [set_name]),
        ("", "pods"): ({"get", "patch"}, own_pods),
        ("", "pods/status"): ({"patch"}, own_pods),
        ("", "configmaps"): ({"get", "patch"}, [f"{set_name}-cluster-id"]),
        ("discovery.k8s.io", "endpointslices"): ({"list"}, None),
        ("", "events"): ({"create"}, None),
        ("", "nodes"): ({"get"}, None),
    }
    for kind in ("RoleBinding", "ClusterRoleBinding"):
        binding = one(manifests, kind)
        assert (
            binding["roleRef"]["name"]
            == one(manifests, binding["roleRef"]["kind"])["metadata"]["name"]
        )
        assert [subject["name"] for subject in binding["subjects"]] == [
            one(manifests, "StatefulSet")["spec"]["template"]["spec"]["serviceAccountName"]
        ]


def test_a_rollout_on_one_machine_is_not_held_up() -> None:
    spec = one(render(), "StatefulSet")["spec"]
    template = spec["template"]["spec"]

    assert spec["podManagementPolicy"] == "Parallel"
    assert "required" not in json.dumps(template["affinity"])
    assert {c["whenUnsatisfiable"] for c in template["topologySpreadConstraints"]} == {
        "ScheduleAnyway"
    }
    assert one(render(), "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1


def test_a_change_of_the_configuration_restarts_the_nodes_and_nothing_else_does() -> None:
    def template(**values: Any) -> Json:
        found: Json = one(render(values), "StatefulSet")["spec"]["template"]
        return found

    assert template() == template()
    assert template() != template(config={"raft": {"copyRate": "1MiB"}})
    assert template() == template(replicaCount=5)
