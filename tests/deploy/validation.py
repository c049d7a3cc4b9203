"""Objects judged by the schemas of Kubernetes' own objects, strictly: an unknown field is an error.

The schemas are those of the package `kubernetes-validate`. They are read once a version: the
package's own function reads 2 MB for every object.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import jsonschema
from kubernetes_validate import utils as schemas
from referencing import Registry, Resource

Json = dict[str, Any]
OLDEST = (1, 29)
WITHOUT_SCHEMA = {
    "cert-manager.io",
    "gateway.networking.k8s.io",
    "keda.sh",
    "monitoring.coreos.com",
}
"""API groups of custom resources."""


def versions() -> list[str]:
    """From 1.29 to the newest that the package has."""
    known = dict.fromkeys(schemas.all_versions())
    return [one for one in known if tuple(map(int, one.split(".")[:2])) >= OLDEST]


def is_custom(manifest: Json) -> bool:
    return manifest["apiVersion"].partition("/")[0] in WITHOUT_SCHEMA


def problems(manifest: Json, version: str) -> Iterator[str]:
    """What the schema of that version finds wrong. Raises SchemaNotFoundError for no schema."""
    for error in _validator(manifest["apiVersion"], manifest["kind"], version).iter_errors(
        manifest
    ):
        where = ".".join(map(str, error.absolute_path))
        yield f"{manifest['kind']} {manifest['metadata']['name']}: {where}: {error.message}"


@cache
def _validator(api_version: str, kind: str, version: str) -> jsonschema.Draft202012Validator:
    group, _, rest = api_version.rpartition("/")
    name = f"{group.split('.')[0]}-{rest}" if group else rest
    folder = f"kubernetes-json-schema/v{version}-local-strict"
    try:
        schema = schemas.schema_contents(f"{folder}/{kind.lower()}-{name}.json", version)
    except FileNotFoundError:
        raise schemas.SchemaNotFoundError(kind, version, api_version) from None
    return jsonschema.Draft202012Validator(schema, registry=_definitions(version))


@cache
def _definitions(version: str) -> Registry[Any]:
    found = schemas.schema_contents(
        f"kubernetes-json-schema/v{version}-local-strict/_definitions.json", version
    )
    resource: Resource[Any] = Resource.from_contents(found)
    return resource @ Registry()


def same(manifest: Json) -> str:
    """Equal for manifests that a schema can't tell apart: what is random is left out."""
    if manifest["kind"] == "Secret":
        manifest = {**manifest, "data": sorted(manifest.get("data", {}))}
    return json.dumps(manifest, sort_keys=True)
