"""The pipeline's image, its manifests and the chart's job: valid, and with options that exist."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer
import yaml

import pipeline
from pipeline.main import COMMANDS
from tests.deploy.rendering import Json, one, render, rendered
from tests.deploy.test_image import check
from tests.deploy.validation import problems, versions

__all__ = ["check"]

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "deploy" / "docker" / "pipeline.Dockerfile"
SPARK = ROOT / "deploy" / "spark"
LAUNCHER = "/opt/goqueue/goqueue_pipeline.py"


def verbs() -> dict[str, Any]:
    """The commands of goqueue-pipeline, as it registers them."""
    app = typer.Typer()
    for module in dict.fromkeys(COMMANDS.values()):
        import_module(module, pipeline.__name__).register(app)
    group: Any = typer.main.get_command(app)
    found: dict[str, Any] = group.commands
    return found


def manifests() -> list[Json]:
    return [
        found
        for path in sorted(SPARK.glob("*.yaml"))
        for found in yaml.safe_load_all(path.read_text())
    ]


def pods(found: list[Json]) -> list[Json]:
    """The pods that jobs of these manifests make."""
    jobs = [m["spec"]["jobTemplate"] for m in found if m["kind"] == "CronJob"]
    jobs += [m for m in found if m["kind"] == "Job"]
    return [job["spec"]["template"]["spec"] for job in jobs]


def words(pod: Json) -> list[str]:
    """What the pod says to goqueue-pipeline."""
    (container,) = pod["containers"]
    command = container["command"]
    if command[0] == "spark-submit":
        assert command[-1] == LAUNCHER
        return [str(word) for word in container["args"]]
    assert command[0] == "goqueue-pipeline"
    return [*command[1:], *map(str, container["args"])]


CHARTS = pods([m for m in rendered("everything on") if m["kind"] == "CronJob"])


@pytest.mark.parametrize("pod", [*pods(manifests()), *CHARTS])
def test_every_option_that_a_pod_is_given_is_one_of_the_command(pod: Json) -> None:
    verb, *rest = words(pod)
    command = verbs()[verb]
    known = {name: option for option in command.params for name in option.opts}

    while rest:
        option = rest.pop(0)
        assert option in known, f"{verb} has no option {option}"
        if not known[option].is_flag:
            assert rest and not rest.pop(0).startswith("--"), option


@pytest.mark.parametrize("version", [versions()[0], versions()[-1]])
@pytest.mark.parametrize(
    "manifest", manifests(), ids=lambda m: f"{m['kind']} {m['metadata']['name']}"
)
def test_the_manifests_are_what_kubernetes_takes(manifest: Json, version: str) -> None:
    assert list(problems(manifest, version)) == []


@pytest.mark.parametrize("pod", [*pods(manifests()), *CHARTS])
def test_pods_run_as_nobody_in_particular_and_write_only_where_they_may_spill(pod: Json) -> None:
    (container,) = pod["containers"]
    security = container["securityContext"]

    assert security["readOnlyRootFilesystem"] is True
    assert security["capabilities"]["drop"] == ["ALL"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    (scratch,) = [volume for volume in pod["volumes"] if volume["name"] == "tmp"]
    assert scratch["emptyDir"]["sizeLimit"] == "4Gi"


def test_the_charts_job_runs_the_pipelines_image_of_the_nodes_version() -> None:
    found = render(
        {
            "archive": {
                "enabled": True,
                "destination": "s3a://b/a",
                "kinds": ["messages", "events"],
            },
            "image": {"registry": "registry.example.com", "repository": "team/goqueue", "tag": "7"},
        }
    )
    (pod,) = pods([one(found, "CronJob")])

    assert pod["containers"][0]["image"] == "registry.example.com/team/goqueue-pipeline:7"
    assert words(pod)[-2:] == ["--api-key-file", "/etc/goqueue/key/api-key"]
    assert words(pod)[words(pod).index("--kind") + 1] == "messages,events"


def test_the_bucket_is_written_with_the_role_that_terraform_makes() -> None:
    role = "eks.amazonaws.com/role-arn"
    accounts = [m for m in manifests() if m["kind"] == "ServiceAccount"]
    variables = (ROOT / "deploy/terraform/modules/eks/variables.tf").read_text()

    assert all(role in account["metadata"]["annotations"] for account in accounts)
    chart = one(rendered("everything on"), "ServiceAccount", "goqueue-archive")
    assert role in chart["metadata"]["annotations"]
    assert 'default     = "goqueue-archive"' in variables


def test_the_pipelines_image_is_made_as_the_nodes_is(check: ModuleType) -> None:
    built, last = check.parse(DOCKERFILE.read_text())
    node = check.parse(check.DOCKERFILE.read_text())[-1]
    copied = [rest.split()[:-1] for word, rest in built.steps if word == "COPY"]

    assert (built.base, last.base) == (node.base, node.base)
    for source in (source for sources in copied for source in sources):
        assert (ROOT / source).exists(), source
        assert not check.is_ignored(source), source
    users = [[rest for word, rest in stage.steps if word == "USER"] for stage in (last, node)]
    assert users[0] == users[1]
    assert ["ENTRYPOINT", '["goqueue-pipeline"]'] in [list(step) for step in last.steps]
    assert f"deploy/spark/goqueue_pipeline.py {LAUNCHER}" in [rest for _, rest in built.steps]


def test_executors_are_asked_by_the_word_that_sparks_driver_uses() -> None:
    assert "executor" in verbs()
