"""The chart renders, by the Helm engine itself."""

from __future__ import annotations

import helm_python
import pytest

from tests.deploy.rendering import one, render


def test_defaults_give_a_statefulset_of_three_nodes() -> None:
    stateful = one(render(), "StatefulSet")

    assert stateful["spec"]["replicas"] == 3
    assert (
        stateful["spec"]["serviceName"]
        == one(render(), "Service", "goqueue-headless")["metadata"]["name"]
    )


def test_a_template_that_fails_is_told() -> None:
    with pytest.raises(helm_python.HelmError):
        render({"global": "not a map"})
