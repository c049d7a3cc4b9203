"""A Kubernetes API for tests: the few resources that a pod asks for, over HTTPS, with tokens.

Objects have a `resourceVersion` from one counter, as in etcd. A watch is told what changed since
its version, and 410 where that is older than what is remembered. Patches merge, and conflict where
they name another version. It can be slow, hang, fail and refuse, on all requests or some.
"""

from __future__ import annotations

import asyncio
import copy
import json
import ssl
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from aiohttp import web
from cryptography import x509

from tests.certificates import Authority

Json = dict[str, Any]
Key = tuple[str, str]
NAMESPACE = "queues"
HISTORY_MAX = 100
WATCH_POLL_S = 0.02


class FakeApi:
    """Started on a free port of `host`. `account` is what a pod has mounted."""

    def __init__(self, folder: Path, host: str = "127.0.0.1") -> None:
        self.host = host
        self.account = folder / "serviceaccount"
        self.account.mkdir(parents=True)
        self.port = 0
        self.tokens: set[str] = set()
        self.objects: dict[Key, Json] = {}
        self.history: list[tuple[int, str, Key, Json]] = []
        self.oldest = 0
        """Watches from before it are too old."""
        self.version = 100
        self.asked: list[str] = []
        """Method and path of each request."""
        self.trouble: Callable[[web.Request], str] = lambda _request: ""
        """What is wrong with an answer: `500`, `text` (a proxy's page), `hang`, `cut`, `slow`."""
        self.before_patch: Callable[[Key], None] = lambda _key: None
        self.watches = 0
        self._runner: web.AppRunner | None = None
        self._authority = Authority(folder)
        self.rotate_token("first")

    async def start(self) -> None:
        app = web.Application(middlewares=[self._check])
        spaced = f"/api/v1/namespaces/{NAMESPACE}"
        sets = f"/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets"
        slices = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"
        app.router.add_get(sets, self._watch_sets)
        app.router.add_get(f"{sets}/{{name}}", self._get("statefulsets"))
        app.router.add_get(f"{spaced}/pods/{{name}}", self._get("pods"))
        app.router.add_patch(f"{spaced}/pods/{{name}}", self._patch(""))
        app.router.add_patch(f"{spaced}/pods/{{name}}/status", self._patch("status"))
        app.router.add_post(f"{spaced}/events", self._event)
        app.router.add_get(f"{spaced}/configmaps/{{name}}", self._get("configmaps"))
        app.router.add_patch(f"{spaced}/configmaps/{{name}}", self._patch_config_map)
        app.router.add_get("/api/v1/nodes/{name}", self._get("nodes"))
        app.router.add_get(slices, self._slices)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        address = x509.IPAddress(ip_address(self.host))
        certificate, key = self._authority.issue("kubernetes", address)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        (self.account / "ca.crt").write_bytes(self._authority.path.read_bytes())
        site = web.TCPSite(self._runner, self.host, self.port, ssl_context=context)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    # what a cluster's other parts do

    def rotate_token(self, token: str) -> None:
        """The former token is refused from now on; the mounted file has the new one."""
        self.tokens = {token}
        (self.account / "token").write_text(token)

    def put(self, kind: str, body: Json) -> None:
        """Create an object, or replace it."""
        name = str(body["metadata"]["name"])
        known = self.objects.get((kind, name))
        kept = copy.deepcopy(body)
        kept["metadata"].setdefault("uid", f"uid-of-{name}")
        self._keep((kind, name), kept, "MODIFIED" if known else "ADDED")

    def delete(self, kind: str, name: str) -> None:
        gone = self.objects.pop((kind, name))
        self.version += 1
        gone["metadata"]["resourceVersion"] = str(self.version)
        self._remember("DELETED", (kind, name), gone)

    def scale(self, name: str, replicas: int) -> None:
        found = copy.deepcopy(self.objects["statefulsets", name])
        found["spec"]["replicas"] = replicas
        self._keep(("statefulsets", name), found, "MODIFIED")

    def compact(self) -> None:
        """Forget what changed: watches that lag are told 410."""
        self.history.clear()
        self.oldest = self.version + 1

    def pod(self, name: str) -> Json:
        return self.objects["pods", name]

    @property
    def events(self) -> list[Json]:
        return [body for (kind, _), body in self.objects.items() if kind == "events"]

    # private

    def _keep(self, key: Key, body: Json, change: str) -> None:
        self.version += 1
        body["metadata"]["resourceVersion"] = str(self.version)
        self.objects[key] = body
        self._remember(change, key, body)

    def _remember(self, change: str, key: Key, body: Json) -> None:
        self.history.append((self.version, change, key, copy.deepcopy(body)))
        if len(self.history) > HISTORY_MAX:
            self.oldest = self.history.pop(0)[0] + 1

    @web.middleware
    async def _check(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.asked.append(f"{request.method} {request.path}")
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or token not in self.tokens:
            return _status(401, "Unauthorized")
        trouble = self.trouble(request)
        if trouble == "hang":
            await asyncio.sleep(3600)
        if trouble == "slow":
            await asyncio.sleep(0.3)
        if trouble == "cut" and request.transport is not None:
            request.transport.abort()
        if trouble == "text":
            return web.Response(text="<html>bad gateway</html>", status=502)
        if trouble.isdigit():
            return _status(int(trouble), "told to fail")
        found: web.StreamResponse = await handler(request)
        return found

    def _get(self, kind: str) -> Any:
        async def answer(request: web.Request) -> web.Response:
            found = self.objects.get((kind, request.match_info["name"]))
            return _status(404, "not found") if found is None else web.json_response(found)

        return answer

    def _patch(self, part: str) -> Any:
        async def answer(request: web.Request) -> web.Response:
            key = ("pods", request.match_info["name"])
            self.before_patch(key)
            found, patch = self.objects.get(key), await request.json()
            if found is None:
                return _status(404, "not found")
            told = patch.get("metadata", {}).pop("resourceVersion", None)
            if told not in (None, found["metadata"]["resourceVersion"]):
                return _status(409, "the object has been modified")
            changed = copy.deepcopy(found)
            if part == "status":
                assert "strategic-merge-patch" in request.content_type
                rows = {one["type"]: one for one in changed["status"].get("conditions", [])}
                rows |= {one["type"]: one for one in patch["status"]["conditions"]}
                changed["status"]["conditions"] = list(rows.values())
            else:
                assert request.content_type == "application/merge-patch+json"
                changed["metadata"].setdefault("labels", {}).update(patch["metadata"]["labels"])
            self._keep(key, changed, "MODIFIED")
            return web.json_response(changed)

        return answer

    async def _patch_config_map(self, request: web.Request) -> web.Response:
        assert request.content_type == "application/merge-patch+json"
        key = ("configmaps", request.match_info["name"])
        self.before_patch(key)
        found, patch = self.objects.get(key), await request.json()
        if found is None:
            return _status(404, "not found")
        if patch["metadata"]["resourceVersion"] != found["metadata"]["resourceVersion"]:
            return _status(409, "the object has been modified")
        changed = copy.deepcopy(found)
        changed.setdefault("data", {}).update(patch["data"])
        self._keep(key, changed, "MODIFIED")
        return web.json_response(changed)

    async def _event(self, request: web.Request) -> web.Response:
        body = await request.json()
        body["metadata"]["name"] = f"{body['metadata'].pop('generateName')}{self.version}"
        self.put("events", body)
        return web.json_response(body, status=201)

    async def _slices(self, request: web.Request) -> web.Response:
        service = request.query["labelSelector"].partition("=")[2]
        items = [
            body
            for (kind, _), body in self.objects.items()
            if kind == "endpointslices"
            and body["metadata"]["labels"]["kubernetes.io/service-name"] == service
        ]
        return web.json_response({"kind": "EndpointSliceList", "items": items})

    async def _watch_sets(self, request: web.Request) -> web.StreamResponse:
        assert request.query.get("watch", "").lower() == "true", "nothing lists all sets"
        name = request.query["fieldSelector"].removeprefix("metadata.name=")
        seen = int(request.query["resourceVersion"])
        if seen + 1 < self.oldest:
            return _status(410, "too old resource version")
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        self.watches += 1
        loop = asyncio.get_running_loop()
        ends = loop.time() + int(request.query["timeoutSeconds"])
        try:
            while loop.time() < ends:
                if seen + 1 < self.oldest:
                    told = {"kind": "Status", "code": 410, "reason": "Expired", "message": "old"}
                    await _send(response, "ERROR", told)
                    break
                for version, change, key, body in list(self.history):
                    if version > seen and key == ("statefulsets", name):
                        await _send(response, change, body)
                seen = self.version
                await asyncio.sleep(WATCH_POLL_S)
        finally:
            self.watches -= 1
        return response


async def _send(response: web.StreamResponse, change: str, body: Json) -> None:
    await response.write(json.dumps({"type": change, "object": body}).encode() + b"\n")


def _status(code: int, message: str) -> web.Response:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}
    return web.json_response({**body, "reason": message, "message": message}, status=code)
