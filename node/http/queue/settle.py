"""Settling by receipt: ack, nack, reject, extend and release, singly or thousands at once.

Results stand in the order of the receipts, each with its own error. A request fails as a whole
only if its body is unusable, or if nothing in it could be settled for a reason of the cluster's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Annotated, Any

import msgspec
from aiohttp import web
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from delivery.config import VISIBILITY_MS_MAX
from delivery.entries.ops import KEPT_REASON_CHARACTERS
from goqueue.wire.errors import BadReceipt, BadRequest, GoQueueError
from goqueue.wire.unreadable import UNREADABLE
from node.api.claims import Claim
from node.api.queue import SettleRequest, SettleView
from node.api.times import Duration, duration_ms, format_time
from node.http.budget.slices import SLICE_BYTES
from node.http.groups.consumer_identity import Generation, Member, claim_of
from node.http.messages.request_spans import traced_request
from node.http.request.answers import RESULT_BYTES, reserve
from node.http.request.call import Call, answer, either
from node.http.text import json
from node.http.text.elements import elements_of
from node.http.text.errors import parts_failed_answer
from node.http.text.known_fields import Body, UnknownField
from node.http.text.pieces import chunked

SETTLES_MAX = 10_000
ACTIONS = ("ack", "nack", "reject", "extend", "release")
POSITIONS = ("front", "back")


class SettleOptions(Body):
    """How to settle. `delay` (the group's backoff if absent) and `position` are of a nack,
    `visibility` (the group's if absent) is of an extend."""

    receipt: str | None = None
    receipt_handle: str | None = None
    reason: str | None = None
    delay: Duration | None = None
    position: str | None = None
    visibility: Duration | None = None
    visibility_timeout: Duration | None = None


class SettleItem(SettleOptions):
    """One receipt and what is to become of it: ack, nack, reject, extend or release."""

    action: str | None = None


class SettleBody(Body):
    """With a `member` and its `generation`, only what that member owns is settled."""

    settles: Annotated[list[SettleItem], Meta(max_length=SETTLES_MAX)]
    member: Member | None = None
    generation: Generation | None = None


class SettleSomeBody(SettleOptions):
    """`receipts`, or one `receipt`; the rest is for all of them."""

    receipts: Annotated[list[str], Meta(max_length=SETTLES_MAX)] | None = None
    member: Member | None = None
    generation: Generation | None = None


class _LooseBody(Body):
    settles: Annotated[list[Raw], Meta(max_length=SETTLES_MAX)]
    member: Member | None = None
    generation: Generation | None = None


class _LooseSomeBody(SettleOptions):
    receipts: Annotated[list[Any], Meta(max_length=SETTLES_MAX)] | None = None
    member: Member | None = None
    generation: Generation | None = None


class SettleResult(Struct):
    """One receipt's end. `state` is what became of the message: acked, requeued, dead, parked,
    halted, expired, extended or released; in its place an error has what every error holds."""

    receipt: str
    success: bool
    action: str
    topic: str | UnsetType = UNSET
    partition: int | UnsetType = UNSET
    offset: int | UnsetType = UNSET
    state: str | UnsetType = UNSET
    attempts: int | UnsetType = UNSET
    visible_at: str | UnsetType = UNSET
    committed_offset: int | UnsetType = UNSET
    offset_advanced: bool | UnsetType = UNSET
    in_flight: int | UnsetType = UNSET
    error: str | UnsetType = UNSET
    status: int | UnsetType = UNSET
    code: str | UnsetType = UNSET
    retriable: bool | UnsetType = UNSET
    outcome: str | UnsetType = UNSET


class SettleAnswer(Struct):
    """Results in the order of the receipts; `settled` counts the successes."""

    results: list[SettleResult]
    settled: int


_STRICT = msgspec.json.Decoder(SettleBody)
_LOOSE = msgspec.json.Decoder(_LooseBody)
_ITEM = msgspec.json.Decoder(SettleItem)
_SOME = msgspec.json.Decoder(_LooseSomeBody)
_ITEMS = msgspec.json.Decoder(list[SettleItem])
_RAWS = msgspec.json.Decoder(list[Raw])
_TEXT = msgspec.json.Decoder(str)
_TEXTS = msgspec.json.Decoder(list[str])

Entry = SettleRequest | GoQueueError


async def settle(call: Call) -> web.Response:
    """POST /groups/{group}/settle: every receipt with an action of its own."""
    group = call.group()
    items, claim = await _items(call)
    if not items:
        raise BadRequest("settles: nothing to settle")
    entries, receipts, actions = await entries_of(call, group, items)
    return await settle_all(call, group, claim, entries, receipts, actions)


async def settle_items(
    call: Call, group: str, claim: Claim, items: Sequence[SettleItem]
) -> list[SettleResult]:
    """As `settle`, beside something else: the results, also where all of them are errors."""
    try:
        entries, receipts, actions = await entries_of(call, group, items)
        outcomes = await _settled(call, group, claim, entries, receipts, actions)
    except GoQueueError as error:
        receipts = [item.receipt or item.receipt_handle or "" for item in items]
        actions = [item.action or "" for item in items]
        outcomes = [error] * len(items)
    return list(map(settle_result, receipts, actions, outcomes))


async def entries_of(
    call: Call, group: str, items: Sequence[SettleItem | GoQueueError]
) -> tuple[list[Entry], list[str], list[str]]:
    """What is asked for each, its receipt, and its action. Raises NotFound where the group's own
    visibility is meant, and there is no group."""
    default_ms = await _default_visibility_ms(call, group, items)
    entries: list[Entry] = []
    receipts: list[str] = []
    actions: list[str] = []
    for item in items:
        if isinstance(item, GoQueueError):
            entries.append(item)
            receipts.append("")
            actions.append("")
            continue
        receipts.append(item.receipt or item.receipt_handle or "")
        actions.append(item.action or "")
        try:
            entries.append(request_of(item, item.action or "", default_ms))
        except GoQueueError as error:
            entries.append(error)
    return entries, receipts, actions


def settle_as(action: str) -> Callable[[Call], Awaitable[web.Response]]:
    """The handler of POST /groups/{group}/{action}: many receipts, one end."""

    async def handler(call: Call) -> web.Response:
        group = call.group()
        wanted = await _some(call)
        receipts = _receipts(wanted)
        claim = claim_of(wanted.member, wanted.generation)
        default_ms = None
        if action == "extend" and wanted.visibility is None and wanted.visibility_timeout is None:
            default_ms = await group_visibility_ms(call, group)
        wanted.receipt, wanted.receipt_handle = "any", None
        model = request_of(wanted, action, default_ms)
        entries: list[Entry] = [
            SettleRequest(
                receipt,
                action,
                model.reason,
                model.delay_ms,
                model.to_back,
                model.visibility_ms,
            )
            if isinstance(receipt, str) and receipt
            else BadReceipt("a receipt must be a string that is not empty")
            for receipt in receipts
        ]
        names = [receipt if isinstance(receipt, str) else "" for receipt in receipts]
        return await settle_all(call, group, claim, entries, names, [action] * len(names))

    return handler


async def settle_all(
    call: Call,
    group: str,
    claim: Claim,
    entries: Sequence[Entry],
    receipts: Sequence[str],
    actions: Sequence[str],
) -> web.Response:
    """Settle what is a request, and answer for every entry in its place."""
    outcomes = await _settled(call, group, claim, entries, receipts, actions)
    results = list(map(settle_result, receipts, actions, outcomes))
    failures = [outcome for outcome in outcomes if isinstance(outcome, GoQueueError)]
    if len(failures) == len(outcomes) and all(error.http_status >= 500 for error in failures):
        body = {"results": msgspec.to_builtins(results), "settled": 0}
        return parts_failed_answer(failures, body)
    results, weight = weighed(results)
    told_all = answer(SettleAnswer(results, len(outcomes) - len(failures)), weight=weight)
    places = {(view.topic, view.partition) for view in outcomes if isinstance(view, SettleView)}
    return call.tell_leader(told_all, *places.pop()) if len(places) == 1 else told_all


async def _settled(
    call: Call,
    group: str,
    claim: Claim,
    entries: Sequence[Entry],
    receipts: Sequence[str],
    actions: Sequence[str],
) -> list[SettleView | GoQueueError]:
    told = traced_request(call)
    await reserve(call, RESULT_BYTES * len(entries) + sum(map(len, receipts)))
    requests = [entry for entry in entries if isinstance(entry, SettleRequest)]
    views = iter(await call.broker.receipts.settle(requests, group, claim) if requests else ())
    outcomes = [next(views) if isinstance(entry, SettleRequest) else entry for entry in entries]
    if told is not None:
        told.settled(group, next(filter(None, actions), "settle"), outcomes)
    return outcomes


def request_of(
    wanted: SettleOptions, action: str, default_visibility_ms: int | None
) -> SettleRequest:
    """What the broker is asked for one receipt. Raises BadRequest with every problem."""
    problems: list[str] = []
    receipt = wanted.receipt or wanted.receipt_handle or ""
    if wanted.receipt and wanted.receipt_handle and wanted.receipt != wanted.receipt_handle:
        problems.append("receipt and receipt_handle differ")
    if not receipt:
        problems.append("receipt is required")
    if action not in ACTIONS:
        problems.append(f"action {action[:40]!r}: want one of {', '.join(ACTIONS)}")
    if action != "nack" and (wanted.delay is not None or wanted.position is not None):
        problems.append("'delay' and 'position' are only valid with action 'nack'")
    if wanted.position not in (None, *POSITIONS):
        problems.append(f"position {wanted.position[:40]!r}: want front or back")
    visibility: int | None = None
    delay_ms: int | None = None
    try:
        given = either(
            wanted.visibility, wanted.visibility_timeout, "visibility", "visibility_timeout"
        )
        if given is not None and action != "extend":
            problems.append("'visibility' is only valid with action 'extend'")
        visibility = visibility_ms(given)
        delay_ms = duration_ms(wanted.delay, "delay")
    except BadRequest as error:
        problems.append(error.message)
    if action == "extend" and visibility is None:
        visibility = default_visibility_ms
    if problems:
        raise BadRequest("; ".join(problems))
    return SettleRequest(
        receipt,
        action,
        (wanted.reason or "")[:KEPT_REASON_CHARACTERS],
        delay_ms,
        wanted.position == "back",
        visibility or 0,
    )


def visibility_ms(given: Duration | None, name: str = "visibility") -> int | None:
    """0 s to 12 h, None where nothing was given. Raises BadRequest."""
    found = duration_ms(given, name)
    if found is not None and found > VISIBILITY_MS_MAX:
        raise BadRequest(f"{name}: longer than {VISIBILITY_MS_MAX // 3_600_000} hours")
    return found


async def group_visibility_ms(call: Call, group: str) -> int:
    """The group's own timeout. Raises NotFound."""
    found = (await call.broker.groups.group(group)).settings.get("visibility_ms")
    assert isinstance(found, int)
    return found


async def _default_visibility_ms(
    call: Call, group: str, items: Sequence[SettleItem | GoQueueError]
) -> int | None:
    for item in items:
        if (
            isinstance(item, SettleItem)
            and item.action == "extend"
            and item.visibility is None
            and item.visibility_timeout is None
        ):
            return await group_visibility_ms(call, group)
    return None


async def _items(call: Call) -> tuple[Sequence[SettleItem | GoQueueError], Claim]:
    """All items, and who settles; where one is not understood, each is judged by itself."""
    async with call.body() as body:
        json.require_json(call.request)
        if len(body) > SLICE_BYTES:
            items, rest = await elements_of(body, b"settles", _decoded, SETTLES_MAX)
            envelope = json.decode(rest, _LOOSE)
            return items, claim_of(envelope.member, envelope.generation)
        try:
            strict = json.decode(body, _STRICT)
            return strict.settles, claim_of(strict.member, strict.generation)
        except UnknownField:
            raise
        except BadRequest:
            loose = json.decode(body, _LOOSE)
        items = [_item(raw) for raw in loose.settles]
        return items, claim_of(loose.member, loose.generation)


async def _some(call: Call) -> _LooseSomeBody:
    async with call.body() as body:
        json.require_json(call.request)
        if len(body) <= SLICE_BYTES:
            return json.decode(body, _SOME)
        receipts, rest = await elements_of(body, b"receipts", _texts, SETTLES_MAX)
        wanted = json.decode(rest, _SOME)
        wanted.receipts = receipts
        return wanted


def _decoded(text: bytes) -> Sequence[SettleItem | GoQueueError]:
    try:
        return json.decode_text(text, _ITEMS)
    except UnknownField:
        raise
    except BadRequest:
        return [_item(raw) for raw in json.decode_text(text, _RAWS)]


def _item(raw: Raw) -> SettleItem | GoQueueError:
    try:
        return json.decode_text(raw, _ITEM)
    except UnknownField:
        raise
    except BadRequest as error:
        return error


def _texts(text: bytes) -> list[Any]:
    """Receipts; None for what is none."""
    with suppress(*UNREADABLE):
        return _TEXTS.decode(text)
    raws = json.decode_text(text, _RAWS)
    return [json.decode_text(raw, _TEXT) if bytes(raw)[:1] == b'"' else None for raw in raws]


def _receipts(wanted: _LooseSomeBody) -> list[Any]:
    one = either(wanted.receipt, wanted.receipt_handle, "receipt", "receipt_handle")
    if wanted.receipts is not None and one is not None:
        raise BadRequest("give receipt or receipts, not both")
    receipts = wanted.receipts if one is None else [one]
    if not receipts:
        raise BadRequest("receipts: nothing to settle")
    return receipts


def weighed(results: list[SettleResult]) -> tuple[list[SettleResult], int]:
    """As an answer holds them, and what they come to."""
    weights = [
        RESULT_BYTES + len(one.receipt) + (len(one.error) if one.error else 0) for one in results
    ]
    return chunked(results, weights), sum(weights)


def settle_result(receipt: str, action: str, outcome: SettleView | GoQueueError) -> SettleResult:
    """What an answer tells of one receipt."""
    if isinstance(outcome, GoQueueError):
        return SettleResult(
            receipt,
            False,
            action,
            error=outcome.message,
            status=outcome.http_status,
            code=outcome.code,
            retriable=outcome.retriable,
            outcome=outcome.outcome,
        )
    return SettleResult(
        receipt,
        True,
        action,
        outcome.topic,
        outcome.partition,
        outcome.offset,
        outcome.outcome,
        outcome.attempts,
        format_time(outcome.visible_at_ms) if outcome.visible_at_ms else UNSET,
        outcome.committed_offset,
        outcome.advanced,
        outcome.in_flight,
    )
