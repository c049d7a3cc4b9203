"""Pods are found by the names of their ordinals, or else by the addresses of their Service."""

from __future__ import annotations

import pytest

from goqueue.wire.types import NodeId
from node.config.file import ConfigError, load_config
from node.config.option import Address
from node.config.pod_names import PodNames
from node.kubernetes.api import ApiProblem
from node.kubernetes.discovery import find_peers, resolves
from tests.kubernetes.conftest import NAMES

POD = {
    "GOQUEUE_KUBERNETES_ENABLED": "true",
    "GOQUEUE_KUBERNETES_SERVICE": "hl",
    "GOQUEUE_CLUSTER_SECRET": "a secret of pods",
    "GOQUEUE_LISTENERS_INTERNAL": "0.0.0.0:7001",
    "POD_NAME": "my-queue-2",
    "POD_NAMESPACE": "ns",
    "KUBERNETES_SERVICE_HOST": "10.0.0.1",
    "KUBERNETES_SERVICE_PORT": "6443",
}


async def found(
    wanted: int | None,
    *,
    by_dns: str = "",
    by_slices: dict[str, str] | None = None,
    known: tuple[str, ...] = (),
) -> dict[NodeId, Address]:
    hosts = {NAMES.host(node) for node in by_dns.split()}

    async def resolve(host: str) -> bool:
        return host in hosts

    async def addresses() -> dict[str, str]:
        if by_slices is None:
            raise ApiProblem("the Kubernetes API is not reached")
        return by_slices

    return await find_peers(
        NAMES,
        NodeId("goqueue-1"),
        wanted,
        map(NodeId, known),
        resolve=resolve,
        addresses=addresses,
    )


def host(ordinal: int) -> Address:
    return f"goqueue-{ordinal}.goqueue-headless.queues.svc", 7000


async def test_all_that_are_wanted_are_named_though_not_all_are_there_yet() -> None:
    assert await found(3, by_dns="goqueue-0") == {"goqueue-0": host(0), "goqueue-2": host(2)}


async def test_whom_dns_does_not_know_is_found_by_the_endpoints() -> None:
    slices = {"goqueue-2": "10.1.2.3", "goqueue-0": "10.9.9.9", "other-0": "10.4.4.4"}

    assert await found(3, by_dns="goqueue-0", by_slices=slices) == {
        "goqueue-0": host(0),
        "goqueue-2": ("10.1.2.3", 7000),
    }


async def test_brokers_beyond_those_wanted_are_still_peers() -> None:
    peers = await found(2, by_dns="goqueue-0", known=("goqueue-4", "else-7", "goqueue-x"))

    assert peers == {"goqueue-0": host(0), "goqueue-4": host(4)}


async def test_without_the_api_ordinals_are_counted_by_their_names() -> None:
    assert list(await found(None, by_dns="goqueue-0 goqueue-2")) == ["goqueue-0", "goqueue-2"]
    assert await found(None) == {}


async def test_dns_is_asked_for_real() -> None:
    assert await resolves("localhost")
    assert not await resolves("goqueue-0.nowhere.invalid")
    assert not await resolves("a" * 300)


@pytest.mark.parametrize("node", ["goqueue", "goqueue-", "goqueue-01", "other-1", "goqueue-1-x"])
def test_what_is_no_pod_of_the_set_has_no_ordinal(node: str) -> None:
    assert NAMES.ordinal(node) is None
    assert NAMES.ordinal("goqueue-12") == 12


def test_a_pod_is_named_and_reached_by_its_own_name() -> None:
    config = load_config(env=POD)

    assert config.node_id == "my-queue-2"
    assert config.peer_address == "my-queue-2.hl.ns.svc:7001"
    assert config.http_url == "http://my-queue-2.hl.ns.svc:8080"
    assert PodNames("my-queue", "hl", "ns", 7001).node(2) == config.node_id
    assert not config.others


def test_what_is_told_wins_over_the_pods_names() -> None:
    config = load_config(env={**POD, "GOQUEUE_CLUSTER_ADVERTISE": "10.0.0.3:7001"})

    assert config.peer_address == "10.0.0.3:7001"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"POD_NAMESPACE": ""}, "needs kubernetes.namespace"),
        ({"GOQUEUE_KUBERNETES_SERVICE": ""}, "needs kubernetes.service"),
        ({"KUBERNETES_SERVICE_HOST": ""}, "needs kubernetes.apiHost"),
        ({"POD_NAME": "x"}, "is no pod of"),
        ({"GOQUEUE_BROKER_NODEID": "node-7"}, "must be the pod's name"),
        ({"GOQUEUE_CLUSTER_SECRET": ""}, "needs cluster.secret"),
        ({"GOQUEUE_KUBERNETES_STATEFULSET": "other"}, "is no pod of"),
    ],
)
def test_a_pod_that_lacks_something_says_what(changed: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_config(env={**POD, **changed})
