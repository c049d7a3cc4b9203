"""What a pod asks of the Kubernetes API, through the real client; what it makes of bad answers."""

from __future__ import annotations

import dataclasses

import pytest

from node.config.kubernetes import KubernetesConfig
from node.kubernetes.api import ApiProblem, Condition, KubernetesApi, Subject
from node.metrics import Metrics
from tests.kubernetes.conftest import NAMES
from tests.kubernetes.fake_api import FakeApi


def count(metrics: Metrics, outcome: str) -> float:
    line = f'goqueue_kubernetes_requests_total{{outcome="{outcome}"}} '
    text = metrics.render()[0].decode()
    return float(text.partition(line)[2].partition("\n")[0] or 0)


def is_up(metrics: Metrics) -> bool:
    return "goqueue_kubernetes_api_up 1.0" in metrics.render()[0].decode()


async def test_it_reads_the_set_the_pod_the_zone_and_the_addresses(
    fake: FakeApi, api: KubernetesApi, metrics: Metrics
) -> None:
    zone = {"topology.kubernetes.io/zone": "eu-1b"}
    fake.put("nodes", {"metadata": {"name": "worker-1", "labels": zone}})
    label = {"kubernetes.io/service-name": NAMES.service}
    endpoints = [
        {"addresses": ["10.0.0.7"], "hostname": "goqueue-0", "conditions": {"ready": False}},
        {"addresses": ["10.0.0.8"]},
    ]
    slice_ = {"metadata": {"name": "s", "labels": label}, "endpoints": endpoints}
    fake.put("endpointslices", slice_)

    assert (await api.statefulset()).spec.replicas == 3
    assert (await api.pod()).spec.termination_grace_period_seconds == 120
    assert await api.zone() == "eu-1b"
    assert await api.addresses() == {"goqueue-0": "10.0.0.7"}
    assert is_up(metrics)
    assert count(metrics, "ok") == 4


async def test_a_condition_is_set_beside_others_and_a_label_conflicts_with_a_newer_pod(
    fake: FakeApi, api: KubernetesApi, metrics: Metrics
) -> None:
    before = (await api.pod()).metadata.resource_version

    await api.condition(Condition("goqueue.io/in-sync", "True"))
    with pytest.raises(ApiProblem) as refused:
        await api.label({"goqueue.io/role": "voter"}, before)
    await api.label({"goqueue.io/role": "voter"}, (await api.pod()).metadata.resource_version)

    pod = fake.pod("goqueue-1")
    assert refused.value.status == 409
    assert count(metrics, "conflict") == 1
    assert pod["metadata"]["labels"] == {"app": "goqueue", "goqueue.io/role": "voter"}
    assert {one["type"]: one["status"] for one in pod["status"]["conditions"]} == {
        "Ready": "False",
        "goqueue.io/in-sync": "True",
    }


async def test_an_event_is_about_its_object(fake: FakeApi, api: KubernetesApi) -> None:
    await api.event(Subject("StatefulSet", "goqueue", "u"), "DrainRefused", "too few are left")

    (event,) = fake.events
    assert event["type"] == "Warning"
    assert event["message"] == "too few are left"
    assert event["involvedObject"]["kind"] == "StatefulSet"


async def test_a_rotated_token_is_read_again_within_the_same_call(
    fake: FakeApi, api: KubernetesApi, metrics: Metrics
) -> None:
    await api.statefulset()
    fake.rotate_token("second")

    assert (await api.statefulset()).spec.replicas == 3
    assert count(metrics, "refused") == 1
    assert is_up(metrics)


async def test_a_token_that_stays_refused_is_told(
    fake: FakeApi, api: KubernetesApi, metrics: Metrics
) -> None:
    fake.tokens.clear()

    with pytest.raises(ApiProblem, match="401"):
        await api.statefulset()

    assert not is_up(metrics)


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        ("500", "answered 500: told to fail"),
        ("403", "answered 403"),
        ("text", "answered 502"),
        ("cut", "not reached"),
    ],
)
async def test_bad_answers_are_one_problem_and_are_counted(
    fake: FakeApi, api: KubernetesApi, metrics: Metrics, trouble: str, said: str
) -> None:
    fake.trouble = lambda _request: trouble

    with pytest.raises(ApiProblem, match=said):
        await api.statefulset()

    assert not is_up(metrics)
    fake.trouble = lambda _request: ""
    assert (await api.statefulset()).spec.replicas == 3
    assert is_up(metrics)


async def test_an_answer_that_does_not_come_is_a_problem(
    fake: FakeApi, api: KubernetesApi, hasty: KubernetesApi, metrics: Metrics
) -> None:
    assert (await api.statefulset()).spec.replicas == 3
    assert is_up(metrics)
    fake.trouble = lambda _request: "hang"

    with pytest.raises(ApiProblem, match="in time"):
        await hasty.statefulset()

    assert not is_up(metrics)


async def test_an_answer_of_another_form_is_a_problem(fake: FakeApi, api: KubernetesApi) -> None:
    fake.put("statefulsets", {"metadata": {"name": "goqueue"}, "spec": {"replicas": "3"}})

    with pytest.raises(ApiProblem, match="no StatefulSet"):
        await api.statefulset()


async def test_an_api_that_is_not_there_is_a_problem(
    fake: FakeApi, api: KubernetesApi, settings: KubernetesConfig, metrics: Metrics
) -> None:
    await fake.stop()
    with pytest.raises(ApiProblem, match="not reached"):
        await api.statefulset()

    without_account = dataclasses.replace(settings, account="/nowhere")
    with pytest.raises(ApiProblem, match="token"):
        await KubernetesApi(without_account, NAMES, metrics).statefulset()


async def test_a_watch_tells_changes_and_a_version_that_is_too_old(
    fake: FakeApi, api: KubernetesApi
) -> None:
    version = (await api.statefulset()).metadata.resource_version
    fake.scale("goqueue", 5)
    seen: list[int | None] = []

    with pytest.raises(ApiProblem) as expired:
        async for change in api.watch(version):
            seen.append(None if change is None else change.spec.replicas)
            if len(seen) == 1:
                fake.delete("statefulsets", "goqueue")
            else:
                fake.put("pods", {"metadata": {"name": "other"}})
                fake.compact()

    assert seen == [5, None]
    assert expired.value.status == 410
    fake.put("pods", {"metadata": {"name": "later"}})
    with pytest.raises(ApiProblem) as too_old:
        await anext(api.watch(version))
    assert too_old.value.status == 410


@pytest.mark.parametrize("trouble", ["text", "500", "cut"])
async def test_a_watch_that_is_no_watch_is_a_problem(
    fake: FakeApi, api: KubernetesApi, trouble: str
) -> None:
    fake.trouble = lambda request: trouble if "watch" in request.query else ""

    with pytest.raises(ApiProblem):
        await anext(api.watch("1"))
