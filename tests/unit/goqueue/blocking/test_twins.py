"""Both kinds of client have the same calls, and the calls that moved keep their former names."""

from __future__ import annotations

import inspect
from typing import Any
from unittest.mock import Mock, create_autospec

import pytest

from goqueue import Admin, AsyncAdmin, AsyncClient, Client
from goqueue.api.moved import MOVED

NOBODY = "http://127.0.0.1:1"
BATCHES = {"pages", "runs", "tail_runs", "replay_runs", "events_pages"}
"""What the asynchronous client has besides, for programs that read much."""
BENEATH = {"known_topics"}
INSIDE = {"receive": {"settler", "timeout_s"}}
"""Arguments that only a consumer gives."""


def calls(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def test_every_call_is_there_for_both_kinds_of_program() -> None:
    assert calls(AsyncClient) - calls(Client) == BATCHES | BENEATH
    assert calls(Client) < calls(AsyncClient)
    assert calls(AsyncAdmin) == calls(Admin)


@pytest.mark.parametrize(
    ("awaited", "blocking", "name"),
    [(AsyncClient, Client, name) for name in sorted(calls(Client) - {"admin", "transport", *MOVED})]
    + [(AsyncAdmin, Admin, name) for name in sorted(calls(Admin))],
)
def test_a_call_takes_the_same_in_both(awaited: type, blocking: type, name: str) -> None:
    taken = inspect.signature(getattr(awaited, name)).parameters.values()
    told = [(one.name, one.kind, one.default) for one in taken]

    expected = [one for one in told if one[0] not in INSIDE.get(name, ())]
    found = inspect.signature(getattr(blocking, name)).parameters.values()
    assert [(one.name, one.kind, one.default) for one in found] == expected


def test_a_programs_tests_may_imitate_a_client() -> None:
    awaited, blocking = create_autospec(AsyncClient), create_autospec(Client)

    publishing = awaited.publish("orders", "x")
    assert inspect.iscoroutine(publishing)
    publishing.close()
    assert not inspect.iscoroutine(blocking.publish("orders", "x"))
    with pytest.raises(TypeError):
        blocking.publish()


@pytest.mark.parametrize("kind", [AsyncClient, Client])
@pytest.mark.parametrize("name", MOVED)
def test_a_call_that_moved_warns_and_is_the_admins(
    kind: type, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client: Any = kind(NOBODY)
    admin = Mock(spec=sorted(calls(type(client.admin))))
    monkeypatch.setattr(client, "_admin", admin)

    meant = rf"{kind.__name__}\.{name} .*admin\.{name} "
    with pytest.warns(DeprecationWarning, match=meant) as told:
        answer = getattr(client, name)("a", limit=1)

    assert told[0].filename == __file__
    getattr(admin, name).assert_called_once_with("a", limit=1)
    assert answer is getattr(admin, name).return_value
