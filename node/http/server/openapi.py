"""The OpenAPI document, generated from the route table and the types that handlers use."""

from __future__ import annotations

import re
from functools import lru_cache
from types import UnionType
from typing import TYPE_CHECKING, Any, get_args

import msgspec
from aiohttp import web
from msgspec import Struct

from goqueue.wire.batch import BATCH_MEDIA_TYPE
from node.http.auth.policies import POLICIES, Policy
from node.http.request.call import Call, answer_bytes

if TYPE_CHECKING:
    from node.http.server.routes import Route

_SCHEMAS = "#/components/schemas/{name}"
_PARAMETER = re.compile(r"\{(\w+)\}")
_TEXT = {
    "topic": "a topic's name",
    "partition": "a partition's number, from 0",
    "id": "topic:partition:offset",
    "trace_id": "32 hex digits",
    "producer": "a producer id",
    "group": "a group's name",
    "offset": "a message's offset",
    "job": "a redrive's number",
    "schedule": "a schedule's name",
    "broker": "a broker's name",
    "reassignment": "a reassignment's number",
    "key": "an API key's id",
}
_SECURITY_SCHEMES = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "an API key, <id>.<secret>, while auth.enabled is on",
    },
    "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}

_EVENT = {
    "type": "object",
    "description": "one event of the stream; of a message, `data` is its JSON",
    "properties": {
        "id": {"type": "string", "pattern": r"^\d+:\d+(,\d+:\d+)*$"},
        "event": {"enum": ["message", "skipped", "end"]},
        "data": {"type": "string"},
        "retry": {"type": "integer"},
    },
}


class ErrorAnswer(Struct):
    """Every error. `outcome` is `none` or `unknown`; further fields hold the error's data."""

    error: str
    status: int
    code: str
    retriable: bool
    outcome: str
    request_id: str = ""


async def serve(call: Call) -> web.Response:
    from node.http.server.routes import ROUTES

    return answer_bytes(_encoded(ROUTES, call.broker.upgrade.version().version))


@lru_cache(maxsize=1)
def _encoded(routes: tuple[Route, ...], version: str) -> bytes:
    return msgspec.json.encode(document(routes, version))


def document(routes: tuple[Route, ...], version: str) -> dict[str, Any]:
    """The whole document: every route at its path and again under `/v1`."""
    types: list[type] = [ErrorAnswer]
    for route in routes:
        types += [
            one
            for told in (route.request, route.response, route.plan)
            for one in alternatives(told)
            if isinstance(one, type)
        ]
    found, components = msgspec.json.schema_components(types, ref_template=_SCHEMAS)
    schemas = dict(zip(types, found, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for prefix in ("", "/v1"):
        for route in routes:
            operation = _operation(route, schemas, "" if not prefix else "V1")
            paths.setdefault(prefix + route.path, {})[route.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "GoQueue",
            "version": version,
            "description": "A clustered, replicated message log that is also a queue.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": _SECURITY_SCHEMES},
    }


def _operation(route: Route, schemas: dict[Any, Any], suffix: str) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": _TEXT[name],
            "schema": {"type": "string"},
        }
        for name in _PARAMETER.findall(route.path)
    ]
    parameters += [
        {
            "name": query.name,
            "in": "query",
            "required": False,
            "description": query.text,
            "schema": {"type": query.type},
        }
        for query in route.query
    ]
    policy = POLICIES[route.operation]
    operation: dict[str, Any] = {
        **_security(policy),
        "operationId": route.operation + suffix,
        "summary": route.summary,
        **({"description": told} if (told := route.events or route.upgrade) else {}),
        "responses": {
            str(route.status): {
                "description": "the connection is a WebSocket" if route.upgrade else "done",
                **_content_out(route, schemas),
            },
            **_plan_out(route, schemas),
            **({"204": {"description": route.nothing}} if route.nothing else {}),
            "default": {
                "description": "an error",
                "content": {"application/json": {"schema": schemas[ErrorAnswer]}},
            },
        },
    }
    if parameters:
        operation["parameters"] = parameters
    content = _content_in(route, schemas)
    if content:
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _security(policy: Policy) -> dict[str, Any]:
    """What is asked while `auth.enabled` is on: a key in either header, of one of these roles."""
    if policy.roles is None:
        return {"security": []}
    return {
        "security": [{name: []} for name in _SECURITY_SCHEMES],
        "x-goqueue-roles": [role.value for role in policy.roles],
        "x-goqueue-reach": policy.reach.value,
    }


def _content_in(route: Route, schemas: dict[Any, Any]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if route.request is not None:
        content["application/json"] = {"schema": schemas[route.request]}
    if route.batch_in:
        content[BATCH_MEDIA_TYPE] = {"schema": {"type": "string", "format": "binary"}}
    return content


def _plan_out(route: Route, schemas: dict[Any, Any]) -> dict[str, Any]:
    if route.plan is None:
        return {}
    content = {"application/json": {"schema": schemas[route.plan]}}
    return {"200": {"description": "a dry run, or nothing to do", "content": content}}


def alternatives(told: Any) -> tuple[Any, ...]:
    """The types that an answer can have, where the route names several."""
    return get_args(told) if isinstance(told, UnionType) else (told,)


def _content_out(route: Route, schemas: dict[Any, Any]) -> dict[str, Any]:
    if route.events:
        return {"content": {"text/event-stream": {"schema": _EVENT}}}
    if route.upgrade:
        return {}
    if route.response is None:
        return {"content": {"text/plain": {"schema": {"type": "string"}}}}
    found = [schemas.get(one, {"type": "object"}) for one in alternatives(route.response)]
    schema = found[0] if len(found) == 1 else {"anyOf": found}
    content: dict[str, Any] = {"application/json": {"schema": schema}}
    if route.batch_out:
        content[BATCH_MEDIA_TYPE] = {"schema": {"type": "string", "format": "binary"}}
    return {"content": content}
