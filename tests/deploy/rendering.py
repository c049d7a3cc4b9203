"""The chart's manifests, rendered by the Helm engine itself."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import helm_python
import yaml

from tests.deploy.matrix import CASES

CHART = Path(__file__).resolve().parents[2] / "deploy" / "helm" / "goqueue"
RELEASE = "goqueue"
NAMESPACE = "queues"

Json = dict[str, Any]


def render(
    values: Json | None = None, *, release: str = RELEASE, namespace: str = NAMESPACE
) -> list[Json]:
    """The objects that `helm install RELEASE` would make with `values` over the chart's own.

    Sorted as the templates' names are. No cluster is asked, so every secret is generated anew.
    Raises `helm_python.HelmError` for values that the chart refuses.
    """
    texts = rendered_texts(values, release=release, namespace=namespace)
    return [
        found
        for path, text in sorted(texts.items())
        if path.endswith(".yaml")
        for found in yaml.load_all(text, Loader=yaml.CSafeLoader)
        if found is not None
    ]


@cache
def rendered(case: str) -> list[Json]:
    """The manifests of one of `matrix.CASES`; shared, so not to be changed."""
    return render(CASES[case])


def rendered_texts(
    values: Json | None = None, *, release: str = RELEASE, namespace: str = NAMESPACE
) -> dict[str, str]:
    """Each template's path in the chart and what it gives, NOTES.txt among them."""
    given = _chart().render(values or {}, name=release, namespace=namespace)
    return {path.partition("/")[2]: text for path, text in given.items()}


def notes(values: Json) -> str:
    """What Helm prints after an installation."""
    return rendered_texts(values)["templates/NOTES.txt"]


def one(manifests: list[Json], kind: str, name: str | None = None) -> Json:
    """The only object of the kind, or the one of the name."""
    found = [
        manifest
        for manifest in manifests
        if manifest["kind"] == kind and name in (None, manifest["metadata"]["name"])
    ]
    assert len(found) == 1, f"{len(found)} of {kind} {name or ''}"
    return found[0]


@cache
def _chart() -> helm_python.Chart:
    return helm_python.Chart.load(CHART)
