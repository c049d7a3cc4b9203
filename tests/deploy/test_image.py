"""What the Dockerfile says, read as scripts/check_image.py reads it to build and run it."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner

from cli.main import app
from tests.deploy.rendering import one, render

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def check() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_image", ROOT / "scripts/check_image.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["check_image"] = module
    spec.loader.exec_module(module)
    return module


def steps(check: ModuleType, word: str) -> list[str]:
    last = check.parse(check.DOCKERFILE.read_text())[-1]
    return [rest for step, rest in last.steps if step == word]


def test_every_instruction_of_the_dockerfile_is_carried_out(check: ModuleType) -> None:
    stages = check.parse(check.DOCKERFILE.read_text())

    assert [stage.base for stage in stages] == ["debian:12.12-slim"] * 2
    with pytest.raises(ValueError, match="ONBUILD is not carried out"):
        check.parse("FROM debian:12-slim\nONBUILD RUN true\n")


def test_all_that_is_copied_is_there_and_in_the_context(check: ModuleType) -> None:
    build = check.parse(check.DOCKERFILE.read_text())[0]
    copied = [rest.split()[:-1] for word, rest in build.steps if word == "COPY"]

    for source in (source for sources in copied for source in sources):
        assert (ROOT / source).exists(), source
        assert not check.is_ignored(source), source
    assert check.is_ignored("tests")
    assert check.is_ignored(".git")


def test_the_image_refuses_to_serve_anybody_unless_that_is_meant(check: ModuleType) -> None:
    (command,) = steps(check, "CMD")
    (environment,) = steps(check, "ENV")
    assert "INSECURE" not in environment
    words = ["serve", *json.loads(command)]
    ours = [name for name in os.environ if name.startswith("GOQUEUE_")]

    refused = CliRunner().invoke(app, words, env=dict.fromkeys(ours))

    assert refused.exit_code == 2 and "--insecure-open" in refused.stderr


def test_every_package_of_the_server_is_in_the_image(check: ModuleType) -> None:
    build = check.parse(check.DOCKERFILE.read_text())[0]
    copied = {rest.split()[0] for word, rest in build.steps if word == "COPY"}
    packages = {"log", "raft", "delivery", "coordinator", "node", "cli", "monitoring", "client"}

    assert packages <= copied


def test_the_chart_runs_the_images_user_ports_volume_and_command(check: ModuleType) -> None:
    template = one(render(), "StatefulSet")["spec"]["template"]["spec"]
    (container,) = template["containers"]

    security = template["securityContext"]
    assert steps(check, "USER") == [f"{security['runAsUser']}:{security['runAsGroup']}"]
    (exposed,) = steps(check, "EXPOSE")
    assert {str(port["containerPort"]) for port in container["ports"]} <= set(exposed.split())
    (volume,) = steps(check, "VOLUME")
    assert volume in {mount["mountPath"] for mount in container["volumeMounts"]}
    assert steps(check, "ENTRYPOINT") == ['["goqueue"]']
    assert container["command"] == ["goqueue"]
