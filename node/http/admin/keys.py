"""API keys: made, listed, rotated, revoked. A secret is only in the answer that makes it."""

from __future__ import annotations

import time
from typing import Annotated

import msgspec
from aiohttp import web
from msgspec import Meta, Struct
from msgspec.structs import astuple

from goqueue.wire.errors import BadRequest
from node.api.auth.keys import KeyBroker, KeyView, NewSecret, SecretView
from node.api.auth.principal import EVERY
from node.api.times import Duration, duration_ms, format_time, parse_time_ms
from node.http.request.call import Call, answer
from node.http.text.errors import NotSupported
from node.http.text.known_fields import Body

GRACE_MS = 24 * 3600 * 1000

Text = Annotated[str, Meta(max_length=1000)]
Prefixes = Annotated[list[Text], Meta(max_length=1000)]


class CreateKeyBody(Body):
    """`prefixes` of topics and groups that it may reach, `*` is all; `group_prefixes` where groups
    differ. `expires_in` or `expires_at`, or it never ends. `roles` is GoQueue's: a list of one."""

    role: Text = ""
    roles: list[Text] | None = None
    prefixes: Prefixes | None = None
    group_prefixes: Prefixes | None = None
    id: Text = ""
    name: Text = ""
    expires_in: Duration | None = None
    expires_at: str | int | None = None


class RotateKeyBody(Body):
    """`grace` is how long the secrets before this one go on, a day unless told; `keep` says which
    of two goes on: newest or oldest."""

    grace: Duration | None = None
    keep: Text = ""


class SecretAnswer(Struct, omit_defaults=True):
    created_at: str
    expires_at: str = ""


class KeyAnswer(Struct, omit_defaults=True):
    """`state` is active, expired or revoked; `secrets` are those that open something."""

    id: str
    name: str
    role: str
    roles: list[str]
    prefixes: list[str]
    group_prefixes: list[str]
    state: str
    created_at: str
    secrets: list[SecretAnswer]
    expires_at: str = ""
    revoked_at: str = ""


class NewKeyAnswer(KeyAnswer, omit_defaults=True, kw_only=True):
    """`key` is what to send, `id.secret`: it can't be asked for again."""

    key: str


class BrowserTokenAnswer(Struct):
    """`token` is for the query field `access_token` of a stream or a tail, for so long."""

    token: str
    expires_in_ms: int


class KeysAnswer(Struct):
    keys: list[KeyAnswer]
    count: int


_CREATE = msgspec.json.Decoder(CreateKeyBody)
_ROTATE = msgspec.json.Decoder(RotateKeyBody)


async def create(call: Call) -> web.Response:
    """POST /admin/keys"""
    wanted = await call.document(_CREATE)
    made = await _keys(call).create_key(
        wanted.id,
        name=wanted.name,
        role=_role(wanted),
        prefixes=_stored(_prefixes(wanted), "prefixes"),
        group_prefixes=_stored(wanted.group_prefixes or [], "group_prefixes"),
        expires_ms=_expires_ms(wanted),
    )
    return _unstored(_new(made), 201)


async def list_all(call: Call) -> web.Response:
    views = await _keys(call).keys()
    return answer(KeysAnswer([_answer(view) for view in views], len(views)))


async def describe(call: Call) -> web.Response:
    return answer(_answer(await _keys(call).key(call.params["key"])))


async def rotate(call: Call) -> web.Response:
    """POST /admin/keys/{key}/rotate"""
    wanted = await call.document(_ROTATE, empty=b"{}")
    grace_ms = duration_ms(wanted.grace, "grace")
    made = await _keys(call).rotate_key(
        call.params["key"],
        grace_ms=GRACE_MS if grace_ms is None else grace_ms,
        keep=wanted.keep,
    )
    return _unstored(_new(made), 200)


async def revoke(call: Call) -> web.Response:
    """DELETE /admin/keys/{key}"""
    return answer(_answer(await _keys(call).revoke_key(call.params["key"])))


def _keys(call: Call) -> KeyBroker:
    if call.shared.keys is None:
        raise NotSupported("there are no API keys here")
    return call.shared.keys


def _role(wanted: CreateKeyBody) -> str:
    given: list[str] = sorted({wanted.role, *(wanted.roles or ())} - {""})
    if len(given) != 1:
        raise BadRequest("role: exactly one of admin, producer, consumer, readonly is required")
    return given[0]


def _prefixes(wanted: CreateKeyBody) -> list[str]:
    if not wanted.prefixes:
        raise BadRequest('prefixes: which topics? Give how their names begin, or ["*"] for all')
    return wanted.prefixes


def _stored(given: list[str], field: str) -> list[str]:
    """Prefixes as they are kept."""
    if "" in given:
        raise BadRequest(f'{field}: "" is no prefix; * is every one')
    return ["" if one == EVERY else one.removesuffix(EVERY) for one in given]


def _expires_ms(wanted: CreateKeyBody) -> int:
    if wanted.expires_in is not None and wanted.expires_at is not None:
        raise BadRequest("give expires_in or expires_at, not both")
    if wanted.expires_at is not None:
        return parse_time_ms(str(wanted.expires_at), "expires_at")
    lives_ms = duration_ms(wanted.expires_in, "expires_in")
    if lives_ms == 0:
        raise BadRequest("expires_in: must be longer than 0")
    return 0 if lives_ms is None else int(time.time() * 1000) + lives_ms


def _new(made: NewSecret) -> NewKeyAnswer:
    return NewKeyAnswer(*astuple(_answer(made.key)), key=made.secret)


def _unstored(body: NewKeyAnswer, status: int) -> web.Response:
    """For nobody's cache."""
    found = answer(body, status)
    found.headers["Cache-Control"] = "no-store"
    return found


def _answer(view: KeyView) -> KeyAnswer:
    return KeyAnswer(
        id=view.id,
        name=view.name,
        role=view.role,
        roles=[view.role],
        prefixes=[prefix or EVERY for prefix in view.prefixes],
        group_prefixes=[prefix or EVERY for prefix in view.group_prefixes],
        state=view.state,
        created_at=format_time(view.created_ms),
        secrets=list(map(_secret, view.secrets)),
        expires_at=_time(view.expires_ms),
        revoked_at=_time(view.revoked_ms),
    )


def _secret(view: SecretView) -> SecretAnswer:
    return SecretAnswer(format_time(view.created_ms), _time(view.expires_ms))


def _time(at_ms: int) -> str:
    return format_time(at_ms) if at_ms else ""


async def browser_token(call: Call) -> web.Response:
    token, life_s = call.shared.browser_token(call.request)
    return answer(BrowserTokenAnswer(token, life_s * 1000), 201)
