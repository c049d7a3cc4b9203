"""The data directories of release 0.1.0 open with this tree, and hold all that they held."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from typing import Any

import pytest

from goqueue import Client
from log.levels import HIGHEST
from tests.cluster.processes import Cluster, eventually, read_all
from tests.upgrade.first_release import (
    ARCHIVE,
    COMPACTED,
    CONTENT,
    DELAYED,
    GROUP,
    KEY,
    MESSAGES,
    PRODUCER,
    SCHEDULE,
    SETTINGS,
    TOPIC,
)

PUBLISHED = {f"order {number}" for number in range(MESSAGES)}
LATER = {f"later {number}" for number in range(DELAYED)}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes of this tree over those directories, which nobody has opened since."""
    folder = tmp_path_factory.mktemp("first-release")
    with tarfile.open(ARCHIVE) as files:
        files.extractall(folder, filter="data")
    with Cluster(folder / "nodes", 3, SETTINGS) as made:
        for node in made.nodes:
            node.folder.mkdir(parents=True)
            (folder / node.id).rename(node.data)
        made.told = json.loads((folder / CONTENT).read_text())  # type: ignore[attr-defined]
        yield made.start()


@pytest.fixture
def told(cluster: Cluster) -> dict[str, Any]:
    found: dict[str, Any] = cluster.told  # type: ignore[attr-defined]
    return found


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Client]:
    with Client([node.url for node in cluster.nodes]) as client:
        yield client


def stored(cluster: Cluster, topic: str, partitions: int) -> list[dict[str, Any]]:
    return [m for number in range(partitions) for m in read_all(cluster[0], topic, number)]


def test_every_message_is_there_once(cluster: Cluster) -> None:
    found = [message["value"] for message in stored(cluster, TOPIC, 2)]

    assert len(found) == len(set(found))
    assert set(found) >= PUBLISHED | LATER
    prices = {message["key"]: message["value"] for message in stored(cluster, COMPACTED, 1)}
    assert prices == {"a": "3", "b": "2"}


def test_group_goes_on_where_it_was(client: Client, told: dict[str, Any]) -> None:
    """What was acked never comes again, dead letters are dead, leases are over and their messages
    come again as a further attempt, the delayed are still to come, or came in the meantime."""
    attempts: dict[str, int] = {}
    dead = {letter.text for letter in client.dead_letters(GROUP, TOPIC)}
    delayed = [one.partition for one in client.delayed(TOPIC)]
    while found := client.receive(GROUP, TOPIC, limit=100, wait="2s"):
        for message in found:
            attempts[message.text] = message.attempt
            message.ack()

    assert dead == set(told["dead"])
    assert attempts.keys() & PUBLISHED == PUBLISHED - {*told["acked"], *told["dead"]}
    assert {attempts[value] for value in told["leased"]} == {2}
    assert len(delayed) + len(attempts.keys() & LATER) == DELAYED


def test_ids_of_producers_are_not_given_out_again(client: Client, told: dict[str, Any]) -> None:
    known = set(told["producers"])

    assert len(known) == 1
    assert client.init_producer().producer_id not in known
    assert client.init_producer(PRODUCER).epoch >= 0


def test_keys_and_schedules_are_there(cluster: Cluster, client: Client) -> None:
    keys = cluster[0].ask("GET", "/v1/admin/keys").body["keys"]

    assert [(key["id"], key["role"], key["state"]) for key in keys] == [(KEY, "producer", "active")]
    assert [(one.name, one.topic) for one in client.schedules()] == [(SCHEDULE, TOPIC)]


def test_cluster_is_of_level_one_and_every_node_says_what_it_speaks(
    cluster: Cluster, client: Client
) -> None:
    def registered() -> bool:
        return {one.highest_level for one in client.admin.cluster_version().brokers} == {HIGHEST}

    eventually("brokers registered anew", registered)
    found = client.admin.cluster_version()

    assert found.finished_level >= 1
    assert {one.lowest_level for one in found.brokers} == {1}
    assert all((node.data / "LEVEL").exists() for node in cluster.nodes)


def test_publishes_go_on(client: Client) -> None:
    assert client.publish(TOPIC, "of this version", key="k1").offset > 0
    assert client.admin.level() >= 1
