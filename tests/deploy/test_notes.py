"""NOTES.txt names what there is, and warns of what is worth it."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest

from tests.deploy.matrix import NO_KEYS
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
