"""AWS on loopback: moto's server, and what it lacks or tells otherwise than EKS and EC2 do."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
Start = Callable[[str, list[tuple[str, str]]], Any]
Wsgi = Callable[[Json, Start], Iterable[bytes]]
REGION = "eu-central-1"
ADDON = re.compile(r"^/clusters/(?P<cluster>[^/]+)/addons(?:/(?P<addon>[^/]+))?$")
CLUSTER = re.compile(r"^/clusters(?:/(?P<cluster>[^/]+))?$")
NODE_GROUP = re.compile(r"^/clusters/[^/]+/node-groups/[^/]+$")
CORRECTED = (
    "EKS addons are kept by the test itself: moto has none",
    "a cluster's access configuration is told as it was asked for: moto forgets it",
    "a node group with a launch template has no SSH key: moto invents one",
    "a launch template's own tags are not its instances': moto mixes them",
)
"""For the report."""


@dataclass
class Aws:
    """moto's application with its EKS put right."""

    moto: Wsgi
    addons: dict[tuple[str, str], Json] = field(default_factory=dict)
    access: dict[str, Json] = field(default_factory=dict)
    """What each cluster was asked to have as its access configuration."""

    def __call__(self, environ: Json, start: Start) -> Iterable[bytes]:
        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        if asked := ADDON.match(path):
            status, answer = self._addon(environ, asked["cluster"], asked["addon"])
            return answered(start, status, answer)
        if (asked := CLUSTER.match(path)) and method == "POST":
            body = read(environ)
            self.access[body["name"]] = body.get("accessConfig", {})
        if asked and asked["cluster"] and method == "GET":
            return self._corrected(environ, start, self._tell_access)
        if NODE_GROUP.match(path) and method == "GET":
            return self._corrected(environ, start, tell_no_key)
        return self.moto(environ, start)

    def _corrected(
        self, environ: Json, start: Start, correct: Callable[[Json], None]
    ) -> Iterable[bytes]:
        told: list[Any] = []
        body = b"".join(self.moto(environ, lambda *given: told.extend(given)))
        status, headers = told[0], told[1]
        if not status.startswith("200"):
            start(status, headers)
            return [body]
        answer = json.loads(body)
        correct(answer)
        return answered(start, status, answer)

    def _tell_access(self, answer: Json) -> None:
        answer["cluster"]["accessConfig"] = self.access[answer["cluster"]["name"]]

    def _addon(self, environ: Json, cluster: str, addon: str | None) -> tuple[str, Json]:
        match environ["REQUEST_METHOD"], addon:
            case "POST", None:
                return "200 OK", {"addon": self._make(cluster, read(environ))}
            case "GET", str() if (cluster, addon) in self.addons:
                return "200 OK", {"addon": self.addons[cluster, addon]}
            case "DELETE", str() if (cluster, addon) in self.addons:
                return "200 OK", {"addon": self.addons.pop((cluster, addon))}
            case _:
                return "404 Not Found", {"message": f"no addon {addon} in {cluster}"}

    def _make(self, cluster: str, body: Json) -> Json:
        """Active at once."""
        name = body["addonName"]
        kept = ("serviceAccountRoleArn", "configurationValues", "tags")
        made = {
            "addonName": name,
            "clusterName": cluster,
            "status": "ACTIVE",
            "addonVersion": "v1.0.0-eksbuild.1",
            "health": {"issues": []},
            "addonArn": f"arn:aws:eks:{REGION}:123456789012:addon/{cluster}/{name}/1",
            "createdAt": 0,
            "modifiedAt": 0,
        } | {key: body[key] for key in kept if body.get(key)}
        self.addons[cluster, name] = made
        return made


def tell_no_key(answer: Json) -> None:
    if answer["nodegroup"].get("launchTemplate"):
        answer["nodegroup"].pop("remoteAccess", None)


def read(environ: Json) -> Json:
    """The request's body, left to be read again."""
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    environ["wsgi.input"] = io.BytesIO(body)
    found: Json = json.loads(body or b"{}")
    return found


def answered(start: Start, status: str, answer: Json) -> Iterable[bytes]:
    headers = [("Content-Type", "application/json")]
    if status.startswith("404"):
        headers.append(("x-amzn-ErrorType", "ResourceNotFoundException"))
    start(status, headers)
    return [json.dumps(answer).encode()]


@contextmanager
def served() -> Iterator[dict[str, str]]:
    """The environment in which Terraform talks to it."""
    os.environ["MOTO_IAM_LOAD_MANAGED_POLICIES"] = "true"  # read when moto is imported
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    keep_tags_apart()
    application = Aws(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, application, threaded=True)
    os.environ["MOTO_PORT"] = str(server.server_port)
    thread = threading.Thread(target=server.serve_forever, name="moto", daemon=True)
    thread.start()
    try:
        yield {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_REGION": REGION,
        }
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=10)


def keep_tags_apart() -> None:
    from moto.ec2.models.launch_templates import LaunchTemplateVersion

    made = LaunchTemplateVersion.__init__
    if made.__module__ == __name__:
        return

    def make(self: Any, template: Any, number: int, data: Json, description: str) -> None:
        tags = data.get("TagSpecifications", [])
        of_instances = [one for one in tags if one["ResourceType"] != "launch-template"]
        made(self, template, number, {**data, "TagSpecifications": of_instances}, description)

    LaunchTemplateVersion.__init__ = make
