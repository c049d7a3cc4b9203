"""Nobody founds a new cluster where one was: whole nodes as pods, over a fake API."""

from __future__ import annotations

from node.kubernetes.api import KubernetesApi
from node.kubernetes.founding import Founding
from tests.kubernetes.conftest import eventually
from tests.kubernetes.fake_api import FakeApi
from tests.kubernetes.whole_pods import LONG_S, RECORD, Pods


def recorded(fake: FakeApi) -> str:
    found: str = fake.objects["configmaps", RECORD].get("data", {}).get("cluster-id", "")
    return found


def not_founded(fake: FakeApi) -> list[str]:
    return [event["message"] for event in fake.events if event["reason"] == "NotFounded"]


async def test_a_first_start_founds_and_the_config_map_names_the_cluster(
    fake: FakeApi, pods: Pods
) -> None:
    await pods.start()

    await eventually(pods.are_ready, LONG_S)
    assert pods.cluster_ids() == {recorded(fake)}
    assert len(recorded(fake)) == 16


async def test_where_all_volumes_are_lost_nothing_is_founded_before_people_say_so(
    fake: FakeApi, pods: Pods
) -> None:
    await pods.start()
    await eventually(pods.are_ready, LONG_S)
    before = recorded(fake)
    await pods.stop()

    pods.lose()
    await pods.start()

    await eventually(lambda: not_founded(fake), LONG_S)
    assert pods.cluster_ids() == {""}
    assert not pods.are_ready()
    (told,) = set(not_founded(fake))
    assert f"all volumes are empty, and ConfigMap {RECORD} names the cluster {before}" in told
    assert "remove the key cluster-id" in told
    await eventually(lambda: pods.reasons() == {told}, LONG_S)
    assert recorded(fake) == before

    del fake.objects["configmaps", RECORD]["data"]["cluster-id"]

    await eventually(pods.are_ready, LONG_S)
    assert pods.cluster_ids() == {recorded(fake)} != {before}


async def test_a_lost_volume_of_one_pod_is_none_of_its_business(fake: FakeApi, pods: Pods) -> None:
    await pods.start()
    await eventually(pods.are_ready, LONG_S)
    before = recorded(fake)

    await pods.stop("goqueue-1")
    pods.lose("goqueue-1")
    await pods.start("goqueue-1")

    await eventually(lambda: pods.are_ready() and pods.cluster_ids() == {before}, LONG_S)
    assert not_founded(fake) == []


async def test_founding_waits_for_the_config_map_and_a_cluster_that_exists_does_not(
    fake: FakeApi, pods: Pods
) -> None:
    def down(request: object) -> str:
        return "500" if "configmaps" in str(request) else ""

    fake.trouble = down
    await pods.start()
    await eventually(lambda: "can't be read or written" in " ".join(pods.reasons()), LONG_S)
    assert pods.cluster_ids() == {""}

    fake.trouble = lambda _request: ""
    await eventually(pods.are_ready, LONG_S)

    await pods.stop()
    fake.trouble = down
    await pods.start()
    await eventually(pods.are_ready, LONG_S)


async def test_a_config_map_that_is_not_there_is_not_taken_for_an_empty_one(
    fake: FakeApi, pods: Pods
) -> None:
    fake.delete("configmaps", RECORD)
    await pods.start()

    await eventually(lambda: "there is no such ConfigMap" in " ".join(pods.reasons()), LONG_S)
    assert pods.cluster_ids() == {""}


async def test_a_cluster_that_is_older_than_the_config_map_is_written_into_it(
    fake: FakeApi, pods: Pods
) -> None:
    await pods.start()
    await eventually(pods.are_ready, LONG_S)
    before = recorded(fake)

    del fake.objects["configmaps", RECORD]["data"]["cluster-id"]

    await eventually(lambda: recorded(fake) == before, LONG_S)


async def test_of_two_that_would_found_different_clusters_one_does(
    fake: FakeApi, api: KubernetesApi
) -> None:
    """Two halves that don't see each other, as after a change of the network."""
    fake.put("configmaps", {"metadata": {"name": RECORD}})
    told: list[str] = []

    async def complain(problem: str) -> None:
        told.append(problem)

    halves = [
        Founding(api, RECORD, current=lambda: 0, changed=lambda: None, complain=complain)
        for _ in range(2)
    ]
    for number, half in enumerate(halves):
        assert half.may_found(number + 1)
    for half in halves:
        await half.start()

    def is_decided() -> bool:  # the one is refused, and the other knows that it is not
        return bool(told) and any(half.may_found(n + 1) == "" for n, half in enumerate(halves))

    await eventually(is_decided)

    allowed = [half.may_found(number + 1) == "" for number, half in enumerate(halves)]
    for half in halves:
        await half.stop()
    assert sorted(allowed) == [False, True]
    assert recorded(fake) == f"{allowed.index(True) + 1:016x}"
