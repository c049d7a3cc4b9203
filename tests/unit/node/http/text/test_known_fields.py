"""A field that a request does not have is refused by name, on every route; nothing is done."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import msgspec
import pytest
from msgspec import inspect as shapes

import node.http
from node.http.messages.columns import PublishBody
from node.http.server.routes import ROUTES
from node.http.text.known_fields import SHOWN_MAX, Body, nearest, unknown_field

NOT_OF_REQUESTS = {
    "node.http.admin.audit": {"AuditRecord", "Sample"},
    "node.http.stream.frames": {"_AnyFrame"},
}
"""Types that are decoded in `node.http`, but from what this server wrote itself; or to find out as
which type a refused frame is to be read once more."""

MESSAGES = "/topics/orders/messages"


class Inner(Body):
    delay: int = 0


class Outer(Body):
    inner: dict[str, list[Inner]] | None = None


def structs(wanted):
    """Every object type within a type, once."""
    found, todo = {}, [shapes.type_info(wanted)]
    while todo:
        one = todo.pop()
        if isinstance(one, shapes.StructType):
            if one.cls not in found:
                found[one.cls] = one
                todo += [field.type for field in one.fields]
        else:
            for name in ("type", "item_type", "value_type", "key_type"):
                if hasattr(one, name):
                    todo.append(getattr(one, name))
            todo += getattr(one, "types", ())
    return list(found.values())


def decoded():
    """Each type that a module of the front decodes, and that routes say they take."""
    for route in ROUTES:
        if route.request is not None:
            yield route.operation, route.request
    for module in pkgutil.walk_packages(node.http.__path__, "node.http."):
        held = vars(importlib.import_module(module.name))
        for value in held.values():
            if isinstance(value, msgspec.json.Decoder) and value.type is not str:
                yield module.name, value.type


def test_every_object_of_every_request_refuses_what_it_does_not_have():
    wanted = list(decoded())

    open_ones = {
        (where, one.cls.__name__)
        for where, kind in wanted
        for one in structs(kind)
        if not one.forbid_unknown_fields and one.cls.__name__ not in NOT_OF_REQUESTS.get(where, ())
    }

    assert len(wanted) > 60
    assert not open_ones, "make it a `Body` of node.http.text.known_fields"


def test_no_handler_decodes_into_a_type_that_this_test_can_not_see():
    """A decoder that is made inside a function would go unseen: they are module constants."""
    for module in pkgutil.walk_packages(node.http.__path__, "node.http."):
        source = inspect.getsource(importlib.import_module(module.name))
        for line in source.splitlines():
            if "json.Decoder(" in line or "json.decode(body, type=" in line:
                assert not line.startswith(" "), (module.name, line)


@pytest.mark.parametrize(
    ("method", "path", "body", "field", "meant"),
    [
        ("POST", "/topics", {"name": "zz", "partitons": 3}, "partitons", "partitions"),
        ("PATCH", "/topics/orders", {"retension_bytes": 5}, "retension_bytes", "retention_bytes"),
        ("PATCH", "/topics/orders", {"config": {"retention.mz": 5}}, "retention.mz",
         "retention.ms"),
        ("POST", MESSAGES, {"value": "v", "delai": "5s"}, "delai", "delay"),
        ("POST", MESSAGES, {"messages": [{"value": "v", "delai": "5s"}]}, "delai", "delay"),
        ("POST", MESSAGES, {"messages": [{"value": "v"}], "sequense": 1}, "sequense", "sequence"),
        ("POST", MESSAGES, {"messages": [{"value": "v"}], "delay": "5s"}, "delay", None),
        ("POST", "/groups/g/receive", {"topic": "orders", "waitTime": "1s"}, "waitTime", "wait"),
        ("POST", "/groups/g/receive", {"topic": "orders", "zzz": 1}, "zzz", None),
        ("POST", "/groups/g/receive", {"topic": "orders", "maxMessages": 1}, "maxMessages",
         "max_messages"),
        ("POST", "/groups/g/settle", {"settles": [{"reciept": "x", "action": "ack"}]}, "reciept",
         "receipt"),
        ("POST", "/groups/g/dlq/redrive", {"topic": "orders", "filter": {"reasn": "x"}}, "reasn",
         "reason"),
        ("POST", "/schedules", {"name": "n", "topic": "orders", "crom": "@daily"}, "crom", "cron"),
    ],
)  # fmt: skip
async def test_a_field_that_is_not_known_is_refused_with_the_nearest_one(
    client, broker, orders, method, path, body, field, meant
):
    answer = await client(method, path, body)

    assert (answer.status, answer.json["code"]) == (400, "unknown_field")
    assert (answer.json["field"], answer.json["nearest"]) == (field, meant)
    assert f"`{field}`" in answer.json["error"]
    assert broker.topics.list_topics() == ["orders"]
    assert (await client.get("/topics/orders")).json["total_messages"] == 0


async def test_one_bad_field_refuses_also_the_messages_beside_it(client, orders):
    body = {"messages": [{"value": "good"}, {"value": 1, "key": 5}, {"value": "v", "delai": "5s"}]}

    answer = await client.post(MESSAGES, body)

    assert (answer.status, answer.json["field"]) == (400, "delai")


async def test_a_group_setting_that_is_not_known_is_named_with_the_nearest_one(client):
    answer = await client("PUT", "/groups/g", {"max_atempts": 3})

    assert (answer.status, answer.json["code"]) == (400, "unknown_field")
    assert (answer.json["field"], answer.json["nearest"]) == ("max_atempts", "max_attempts")
    assert "unknown field `max_atempts`; did you mean `max_attempts`?" in answer.json["error"]


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
async def test_a_group_setting_that_is_not_known_is_told_with_all_else_that_is_wrong(
    client, orders, method
):
    await client("PUT", "/groups/g", {})

    answer = await client(method, "/groups/g", {"mode": "odd", "zzz": 1, "in_flight_max": 0})

    assert (answer.status, answer.json["code"]) == (400, "unknown_field")
    assert (answer.json["field"], answer.json["nearest"]) == ("zzz", None)
    assert [problem.split(":")[0] for problem in answer.json["problems"]] == [
        "mode", "unknown field `zzz`", "in_flight_max",
    ]  # fmt: skip
    assert answer.json["error"] == "; ".join(answer.json["problems"])


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/groups/g/join", {"client_id": "w", "topics": ["orders"], "protocol": "cooperative"}),
        ("/producers/init", {"transactional_id": None, "transaction_timeout_ms": 60000}),
        (MESSAGES, {"messages": [{"value": "v", "delay": None, "priority": None, "key": None}]}),
        ("/messages/ack", {"receipt_handle": None, "consumer_id": None}),
        ("/messages/nack", {"receipt_handle": None, "delay": None, "reason": None}),
        ("/messages/reject", {"receipt_handle": None, "reason": None}),
        ("/messages/visibility", {"receipt_handle": None, "timeout": "60s"}),
    ],
)
async def test_what_goqueues_clients_send_and_this_server_does_not_need_is_accepted(
    client, orders, path, body
):
    answer = await client.post(path, body)

    assert answer.status == 200 or answer.json["error"].endswith("is required")


async def test_query_parameters_that_are_not_known_are_ignored(client, orders):
    assert (await client.get("/topics/orders?utm_source=mail")).status == 200


def test_names_are_compared_without_case_and_underscores():
    assert nearest("visibilityTimeout", ["wait", "visibility_timeout"]) == "visibility_timeout"
    assert nearest("zzz", ["wait", "visibility_timeout"]) is None


def test_a_hostile_name_is_cut_and_costs_no_more():
    name = "x" * 1_000_000 + "` - at `$.messages[0]"
    with pytest.raises(msgspec.ValidationError) as told:
        msgspec.json.decode(msgspec.json.encode({name: 1}), type=PublishBody)

    error = unknown_field(str(told.value), PublishBody)

    assert error is not None
    assert len(error.message) < 2 * SHOWN_MAX
    assert error.data["field"] == "x" * SHOWN_MAX


def test_the_place_of_a_field_in_a_nested_object_is_told():
    with pytest.raises(msgspec.ValidationError) as told:
        msgspec.json.decode(b'{"inner": {"a": [{}, {"delai": 1}]}}', type=Outer)

    error = unknown_field(str(told.value), Outer)

    assert error is not None
    assert error.message == "inner[...][1]: unknown field `delai`; did you mean `delay`?"
