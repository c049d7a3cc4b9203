"""The Kubernetes API, as far as a pod asks it, through the `kubernetes` client's asyncio part.

The client's core is what is used: account, TLS and requests. Its generated classes for each kind of
object take two seconds of CPU time to import, and milliseconds of the loop for each call: answers
are read into small structs instead. Every request is bounded in time and counted; none is repeated
here, but one whose token was refused: that is read again, since the kubelet rotates it.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import msgspec
from msgspec import Struct

from node.config.kubernetes import KubernetesConfig
from node.config.pod_names import RECORD_KEY, PodNames
from node.metrics import Metrics

ANSWER_BYTES_MAX = 4 << 20
WATCH_S = 30
"""A watch is begun anew so often, with a look at what is: one that hangs hides nothing for long."""
WATCH_GRACE_S = 5.0
ZONE_LABEL = "topology.kubernetes.io/zone"
SERVICE_LABEL = "kubernetes.io/service-name"
JSON = "application/json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
T = TypeVar("T")
_IN_CLUSTER = "kubernetes.aio.config.incluster_config"
_OUTCOMES = {401: "refused", 403: "refused", 404: "missing", 409: "conflict", 410: "expired"}


class ApiProblem(Exception):
    """The API did not do what was asked. `status` is its answer's, None where none came."""

    def __init__(self, problem: str, status: int | None = None) -> None:
        super().__init__(problem)
        self.status = status


class ClientMissing(Exception):
    """The extra `kubernetes` is not installed."""


class Meta(Struct, rename="camel"):
    """Of any object: `version` for watches and conflicts."""

    name: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None
    labels: dict[str, str] = {}


class _SetSpec(Struct):
    replicas: int = 1


class StatefulSet(Struct):
    """What is wanted: `replicas` nodes."""

    metadata: Meta
    spec: _SetSpec = msgspec.field(default_factory=_SetSpec)


class Condition(Struct):
    """One of a pod's."""

    type: str
    status: str
    message: str = ""


class _PodSpec(Struct, rename="camel"):
    termination_grace_period_seconds: int | None = None


class _PodStatus(Struct):
    conditions: list[Condition] = []


class PodSeen(Struct):
    """This pod, as the API knows it."""

    metadata: Meta
    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)


class _ConfigMap(Struct):
    metadata: Meta
    data: dict[str, str] | None = None


class _Machine(Struct):
    metadata: Meta


class _Endpoint(Struct):
    addresses: list[str] = []
    hostname: str | None = None


class _Slice(Struct):
    endpoints: list[_Endpoint] | None = None


class _Slices(Struct):
    items: list[_Slice] = []


class _Event(Struct):
    type: str
    object: msgspec.Raw


class _Refusal(Struct):
    code: int = 0
    message: str = ""


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    path: str
    query: Mapping[str, str]
    body: Mapping[str, Any] | None = None
    content_type: str = JSON


@dataclass(frozen=True, slots=True)
class ClusterRecord:
    """The cluster's id as it is kept, empty for none, and the version of what it is kept in."""

    cluster: str
    version: str


@dataclass(frozen=True, slots=True)
class Subject:
    """What an event is about."""

    kind: str
    name: str
    uid: str = field(default="")


class KubernetesApi:
    """Opened with the first request. Loop thread only."""

    def __init__(self, config: KubernetesConfig, names: PodNames, metrics: Metrics) -> None:
        self._config = config
        self._names = names
        self._metrics = metrics.kubernetes
        self._library = _library()
        self._client: Any = None
        space = f"namespaces/{names.namespace}"
        self._sets = f"/apis/apps/v1/{space}/statefulsets"
        self._pod = f"/api/v1/{space}/pods/{config.pod}"
        self._events = f"/api/v1/{space}/events"
        self._record = f"/api/v1/{space}/configmaps/{names.cluster_record}"
        self._slices = f"/apis/discovery.k8s.io/v1/{space}/endpointslices"
        self._timeout_s = config.request_timeout_ms / 1000

    async def close(self) -> None:
        """Idempotent; a later request opens it again."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    # what is asked; all raise ApiProblem

    async def statefulset(self) -> StatefulSet:
        body = await self._ask("GET", f"{self._sets}/{self._names.statefulset}")
        return _decode(body, StatefulSet)

    async def pod(self) -> PodSeen:
        body = await self._ask("GET", self._pod)
        return _decode(body, PodSeen)

    async def zone(self) -> str:
        """The zone of the machine; empty where it has no such label."""
        body = await self._ask("GET", f"/api/v1/nodes/{self._config.machine}")
        return _decode(body, _Machine).metadata.labels.get(ZONE_LABEL, "")

    async def addresses(self) -> dict[str, str]:
        """Addresses of the Service's pods by host name, ready or not."""
        query = {"labelSelector": f"{SERVICE_LABEL}={self._names.service}"}
        body = await self._ask("GET", self._slices, query)
        return {
            endpoint.hostname: endpoint.addresses[0]
            for one in _decode(body, _Slices).items
            for endpoint in one.endpoints or []
            if endpoint.hostname and endpoint.addresses
        }

    async def cluster_record(self) -> ClusterRecord:
        found = _decode(await self._ask("GET", self._record), _ConfigMap)
        cluster = (found.data or {}).get(RECORD_KEY, "").strip()
        return ClusterRecord(cluster, found.metadata.resource_version)

    async def watch(self, version: str) -> AsyncGenerator[StatefulSet | None, None]:
        """The set after each change since that version, None once it is deleted; ends by itself
        after `WATCH_S`. Raises ApiProblem: with 410 the version is too old to go on from."""
        async with aclosing(self._lines(version)) as lines:
            async for line in lines:
                event = _decode(line, _Event)
                if event.type == "ERROR":
                    raise self._counted(_refusal(event.object, None))
                if event.type == "DELETED":
                    yield None
                elif event.type != "BOOKMARK":
                    yield _decode(event.object, StatefulSet)

    # what is changed; all raise ApiProblem

    async def label(self, labels: Mapping[str, str], version: str) -> None:
        """409 where the pod is not as it was at that version any more."""
        body = {"metadata": {"resourceVersion": version, "labels": dict(labels)}}
        await self._ask("PATCH", self._pod, body=body, content_type=MERGE)

    async def record_cluster(self, cluster: str, version: str) -> None:
        """Keep the cluster's id. 409 where the record is not as it was at that version any more."""
        body = {"metadata": {"resourceVersion": version}, "data": {RECORD_KEY: cluster}}
        await self._ask("PATCH", self._record, body=body, content_type=MERGE)

    async def condition(self, condition: Condition) -> None:
        """Set one condition of this pod; others are let alone."""
        told = {
            "type": condition.type,
            "status": condition.status,
            "message": condition.message,
            "lastTransitionTime": _now(),
        }
        body = {"status": {"conditions": [told]}}
        await self._ask("PATCH", f"{self._pod}/status", body=body, content_type=STRATEGIC)

    async def event(self, about: Subject, reason: str, message: str) -> None:
        """A warning that `kubectl describe` shows with the object."""
        now, namespace = datetime.now(UTC), self._names.namespace
        body = {
            "metadata": {"generateName": f"{about.name}.", "namespace": namespace},
            "involvedObject": {
                "kind": about.kind,
                "name": about.name,
                "namespace": namespace,
                "uid": about.uid,
            },
            "type": "Warning",
            "reason": reason,
            "message": message[:1024],
            "source": {"component": "goqueue", "host": self._config.machine},
            "firstTimestamp": _now(now),
            "lastTimestamp": _now(now),
            "count": 1,
        }
        await self._ask("POST", self._events, body=body)

    # private

    async def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        body: Mapping[str, Any] | None = None,
        content_type: str = JSON,
    ) -> bytes:
        request = _Request(method, path, query or {}, body, content_type)
        try:
            return await self._try(request)
        except ApiProblem as problem:
            if problem.status != 401:
                raise
        await self.close()  # the token may have been rotated: it is read again
        return await self._try(request)

    async def _try(self, request: _Request) -> bytes:
        try:
            async with asyncio.timeout(self._timeout_s):
                response = await self._send(request, self._timeout_s)
                try:
                    body = await _body(response)
                finally:
                    response.release()
        except Exception as error:
            raise self._unreachable(error) from error
        if response.status >= 400:
            raise self._counted(_refusal(body, response.status))
        self._answered("ok")
        return body

    async def _send(self, request: _Request, timeout_s: float) -> aiohttp.ClientResponse:
        client = await self._open()
        made = await client.param_serialize(
            request.method,
            request.path,
            query_params=list(request.query.items()),
            header_params={"Accept": JSON, "Content-Type": request.content_type},
            body=request.body,
            auth_settings=["BearerToken"],
        )
        answer = await client.call_api(*made, _request_timeout=timeout_s)
        found: aiohttp.ClientResponse = answer.response
        return found

    async def _lines(self, version: str) -> AsyncGenerator[bytes, None]:
        query = {
            "watch": "true",
            "fieldSelector": f"metadata.name={self._names.statefulset}",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_S),
        }
        request = _Request("GET", self._sets, query)
        response: aiohttp.ClientResponse | None = None
        try:
            async with asyncio.timeout(WATCH_S + WATCH_GRACE_S):
                async with asyncio.timeout(self._timeout_s):  # its headers come at once
                    response = await self._send(request, WATCH_S + WATCH_GRACE_S)
                if response.status >= 400:
                    raise self._counted(_refusal(await _body(response), response.status))
                while line := await response.content.readline():
                    self._answered("ok")
                    yield line
        except ApiProblem as problem:
            if problem.status == 401:
                await self.close()
            raise
        except Exception as error:
            raise self._unreachable(error) from error
        finally:
            if response is not None:
                response.close()

    async def _open(self) -> Any:
        if self._client is None:
            client = await asyncio.to_thread(_client, self._library, self._config)
            if self._client is None:
                self._client = client
            else:  # another request was quicker
                await client.close()
        return self._client

    def _answered(self, outcome: str) -> None:
        self._metrics.requests.labels(outcome).inc()
        self._metrics.api_up.set(outcome not in ("refused", "failed", "unreachable"))

    def _counted(self, problem: ApiProblem) -> ApiProblem:
        self._answered(_OUTCOMES.get(problem.status or 0, "failed"))
        return problem

    def _unreachable(self, error: Exception) -> ApiProblem:
        if isinstance(error, ApiProblem):
            return error
        self._answered("unreachable")
        if isinstance(error, TimeoutError):
            return ApiProblem("the Kubernetes API did not answer in time")
        return ApiProblem(f"the Kubernetes API is not reached: {error or type(error).__name__}")


def check_client() -> None:
    """Raises ClientMissing."""
    _library()


def _library() -> Any:
    """The client's asyncio part: half a second of CPU time to import, so only in a pod. Raises
    ClientMissing."""
    os.environ.setdefault("HOME", "/")  # it is looked for at the import; a pod's user may have none
    try:
        importlib.import_module(_IN_CLUSTER)
        return importlib.import_module("kubernetes.aio.client")
    except ImportError as error:
        raise ClientMissing(
            "kubernetes.enabled needs the extra: pip install goqueue-server[kubernetes]"
        ) from error


def _client(library: Any, config: KubernetesConfig) -> Any:
    """What `load_incluster_config` does, from our own settings. Raises OSError, ValueError and
    what the library raises."""
    loader = importlib.import_module(_IN_CLUSTER)
    configuration = library.Configuration()
    loader.InClusterConfigLoader(
        token_filename=str(Path(config.account) / "token"),
        cert_filename=str(Path(config.account) / "ca.crt"),
        environ={
            loader.SERVICE_HOST_ENV_NAME: config.api_host,
            loader.SERVICE_PORT_ENV_NAME: str(config.api_port),
        },
    ).load_and_set(configuration)
    try:
        return library.ApiClient(configuration)
    except ssl.SSLError as error:
        raise ValueError(f"{configuration.ssl_ca_cert}: {error}") from error


async def _body(response: aiohttp.ClientResponse) -> bytes:
    parts, size = list[bytes](), 0
    async for part in response.content.iter_chunked(1 << 16):
        size += len(part)
        if size > ANSWER_BYTES_MAX:
            raise ApiProblem(f"an answer of more than {ANSWER_BYTES_MAX} bytes")
        parts.append(part)
    return b"".join(parts)


def _refusal(body: bytes | msgspec.Raw, status: int | None) -> ApiProblem:
    try:
        told = msgspec.json.decode(body, type=_Refusal)
    except msgspec.DecodeError:
        told = _Refusal()
    code = status or told.code or None
    return ApiProblem(f"the Kubernetes API answered {code}: {told.message[:300]}", code)


def _decode(body: bytes | msgspec.Raw, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise ApiProblem(
            f"the Kubernetes API answered what is no {kind.__name__}: {error}"
        ) from None


def _now(time: datetime | None = None) -> str:
    return (time or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ")
