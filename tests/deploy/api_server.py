"""An imitation of a Kubernetes API server, as far as Helm asks one: it keeps what it is given.

It tells which kinds there are, takes objects by server-side apply, gives and deletes
them, and judges each by the strict schemas of one version. It runs nothing, has no admission,
defaults, owners or watches. An object applied twice is as it was applied last.
"""

from __future__ import annotations

import asyncio
import json
import threading
import uuid
from types import TracebackType
from typing import Any

import helm_python
import yaml
from aiohttp import web

from tests.deploy.validation import is_custom, problems, versions

Json = dict[str, Any]
OBJECT_BYTES_MAX = 3 << 19
"""1.5 MiB, as etcd takes them."""
KINDS: dict[str, tuple[tuple[str, str], ...]] = {
    "v1": (
        ("configmaps", "ConfigMap"),
        ("pods", "Pod"),
        ("secrets", "Secret"),
        ("serviceaccounts", "ServiceAccount"),
        ("services", "Service"),
    ),
    "apps/v1": (("statefulsets", "StatefulSet"),),
    "batch/v1": (("cronjobs", "CronJob"),),
    "cert-manager.io/v1": (("certificates", "Certificate"),),
    "gateway.networking.k8s.io/v1": (
        ("backendtlspolicies", "BackendTLSPolicy"),
        ("grpcroutes", "GRPCRoute"),
        ("httproutes", "HTTPRoute"),
        ("tlsroutes", "TLSRoute"),
    ),
    "keda.sh/v1alpha1": (
        ("scaledobjects", "ScaledObject"),
        ("triggerauthentications", "TriggerAuthentication"),
    ),
    "monitoring.coreos.com/v1": (
        ("podmonitors", "PodMonitor"),
        ("prometheusrules", "PrometheusRule"),
        ("servicemonitors", "ServiceMonitor"),
    ),
    "networking.k8s.io/v1": (("ingresses", "Ingress"), ("networkpolicies", "NetworkPolicy")),
    "policy/v1": (("poddisruptionbudgets", "PodDisruptionBudget"),),
    "rbac.authorization.k8s.io/v1": (
        ("clusterrolebindings", "ClusterRoleBinding"),
        ("clusterroles", "ClusterRole"),
        ("rolebindings", "RoleBinding"),
        ("roles", "Role"),
    ),
    "storage.k8s.io/v1": (("storageclasses", "StorageClass"),),
}
CLUSTER_WIDE = {"ClusterRole", "ClusterRoleBinding", "StorageClass"}
VERBS = ["create", "delete", "get", "list", "patch", "update"]


class ApiServer:
    """Serves on a free port, in a thread of its own, while it is entered."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Json] = {}
        """By kind and name."""
        self.refused: list[str] = []
        self._port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="api-server", daemon=True)
        self._started = threading.Event()

    def __enter__(self) -> ApiServer:
        self._thread.start()
        assert self._started.wait(10)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def helm(self, namespace: str) -> helm_python.Config:
        """Helm, talking to this server. It remembers releases itself: it would post them as
        protobuf, which is not spoken here."""
        server = f"http://127.0.0.1:{self._port}"
        kubeconfig = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "here", "cluster": {"server": server}}],
            "users": [{"name": "me", "user": {"token": "any"}}],
            "contexts": [{"name": "it", "context": {"cluster": "here", "user": "me"}}],
            "current-context": "it",
        }
        return helm_python.Config(
            kubeconfig_content=yaml.safe_dump(kubeconfig),
            namespace=namespace,
            storage_driver="memory",
            qps=1000.0,
        )

    def named(self, kind: str, prefix: str = "") -> dict[str, Json]:
        return {
            name: one
            for (found, name), one in self.objects.items()
            if found == kind and name.startswith(prefix)
        }

    # private

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        app = web.Application(client_max_size=8 << 20)
        app.router.add_get("/version", _version)
        app.router.add_get("/api", _core)
        app.router.add_get("/apis", _groups)
        app.router.add_get("/openapi/v3", _documents)
        app.router.add_get("/openapi/v3/{path:.+}", _document)
        for group_version, kinds in KINDS.items():
            root = _root(group_version)
            app.router.add_get(root, _resources(group_version))
            for plural, kind in kinds:
                spaced = "" if kind in CLUSTER_WIDE else "/namespaces/{namespace}"
                app.router.add_route("*", f"{root}{spaced}/{plural}", self._all(kind))
                app.router.add_route("*", f"{root}{spaced}/{plural}/{{name}}", self._one(kind))
        runner = web.AppRunner(app)
        self._loop.run_until_complete(runner.setup())
        self._loop.run_until_complete(web.TCPSite(runner, "127.0.0.1", 0).start())
        self._port = runner.addresses[0][1]
        self._started.set()
        self._loop.run_forever()
        self._loop.run_until_complete(runner.cleanup())
        self._loop.close()

    def _all(self, kind: str) -> Any:
        async def answer(request: web.Request) -> web.Response:
            if request.method == "POST":
                return self._keep(await request.json(), 201)
            wanted = [
                tuple(term.split("="))
                for term in request.query.get("labelSelector", "").split(",")
                if term
            ]
            items = [
                one
                for one in self.named(kind).values()
                if all(one["metadata"].get("labels", {}).get(key) == to for key, to in wanted)
            ]
            return web.json_response({"kind": f"{kind}List", "apiVersion": "v1", "items": items})

        return answer

    def _one(self, kind: str) -> Any:
        async def answer(request: web.Request) -> web.Response:
            key = (kind, request.match_info["name"])
            if request.method == "PATCH" and request.content_type == "application/apply-patch+yaml":
                return self._keep(yaml.safe_load(await request.text()), 200)
            if key not in self.objects:
                return _status(404, "NotFound", f"no {kind} {key[1]}")
            if request.method == "GET":
                return web.json_response(self.objects[key])
            if request.method == "PUT":
                return self._keep(await request.json(), 200)
            if request.method == "DELETE":
                del self.objects[key]
                return web.json_response({"kind": "Status", "status": "Success"})
            return _status(405, "MethodNotAllowed", request.method)

        return answer

    def _keep(self, body: Json, status: int) -> web.Response:
        wrong = [] if is_custom(body) else list(problems(body, versions()[-1]))
        if len(json.dumps(body)) > OBJECT_BYTES_MAX:
            wrong.append(f"{body['kind']} {body['metadata']['name']} is too large")
        if wrong:
            self.refused += wrong
            return _status(422, "Invalid", "; ".join(wrong))
        meta = body["metadata"]
        known = self.objects.get((body["kind"], meta["name"]), {"metadata": {}})["metadata"]
        meta["uid"] = known.get("uid", str(uuid.uuid4()))
        meta["resourceVersion"] = str(int(known.get("resourceVersion", "0")) + 1)
        self.objects[body["kind"], meta["name"]] = body
        return web.json_response(body, status=status)


def _root(group_version: str) -> str:
    return "/api/v1" if group_version == "v1" else f"/apis/{group_version}"


async def _version(_request: web.Request) -> web.Response:
    major, minor, _ = versions()[-1].split(".")
    return web.json_response({"major": major, "minor": minor, "gitVersion": f"v{versions()[-1]}"})


async def _core(_request: web.Request) -> web.Response:
    return web.json_response({"kind": "APIVersions", "versions": ["v1"]})


async def _groups(_request: web.Request) -> web.Response:
    groups = []
    for group_version in KINDS:
        name, _, version = group_version.rpartition("/")
        if name:
            row = {"groupVersion": group_version, "version": version}
            groups.append({"name": name, "versions": [row], "preferredVersion": row})
    return web.json_response({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})


def _resources(group_version: str) -> Any:
    rows = [
        {
            "name": plural,
            "singularName": kind.lower(),
            "kind": kind,
            "namespaced": kind not in CLUSTER_WIDE,
            "verbs": VERBS,
        }
        for plural, kind in KINDS[group_version]
    ]
    body = {"kind": "APIResourceList", "groupVersion": group_version, "resources": rows}

    async def answer(_request: web.Request) -> web.Response:
        return web.json_response(body)

    return answer


async def _documents(_request: web.Request) -> web.Response:
    """Where Helm looks whether the server validates fields itself."""
    paths = [_root(group_version).removeprefix("/") for group_version in KINDS]
    return web.json_response(
        {"paths": {path: {"serverRelativeURL": f"/openapi/v3/{path}?hash=0"} for path in paths}}
    )


async def _document(request: web.Request) -> web.Response:
    path = request.match_info["path"]
    group_version = path.removeprefix("apis/").removeprefix("api/")
    group, _, version = group_version.rpartition("/")
    parameters = [{"name": "fieldValidation", "in": "query"}]
    paths = {
        f"/{path}/{plural}/{{name}}": {
            "patch": {
                "parameters": parameters,
                "responses": {},
                "x-kubernetes-group-version-kind": {
                    "group": group,
                    "version": version,
                    "kind": kind,
                },
            }
        }
        for plural, kind in KINDS[group_version]
    }
    info = {"title": "Kubernetes", "version": "0"}
    return web.json_response({"openapi": "3.0.0", "info": info, "paths": paths})


def _status(code: int, reason: str, message: str) -> web.Response:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}
    return web.json_response({**body, "reason": reason, "message": message}, status=code)
