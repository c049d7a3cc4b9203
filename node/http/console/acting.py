"""Who may change something from the console."""

from __future__ import annotations

from goqueue.wire.errors import GoQueueError
from node.api.auth.hosts import is_loopback
from node.http.auth.csrf_guard import hostname
from node.http.auth.policies import CONSUME
from node.http.request.call import Call

_FORWARDED = ("Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-IP")


class ReadOnly(GoQueueError):
    """The console shows, and changes nothing, for this caller."""

    code, http_status, text = "console_read_only", 403, "the console may not change anything here"


def may_act(call: Call) -> bool:
    """Whether the caller may redrive and purge. Where nobody shows keys, whoever can reach a node
    that listens on loopback only has the machine, and is trusted with it."""
    return not obstacle(call)


def obstacle(call: Call) -> str:
    """Why the caller may not act; empty where it may.

    Who has shown a key may what the key's role may; how far it reaches, the broker judges. Else: a
    name that is not loopback's in `Host` is a page elsewhere whose name was made to lead here, or a
    proxy on this machine that lets others in, as forwarding headers are.
    """
    if (principal := call.principal) is not None:
        if principal.role in CONSUME:
            return ""
        return f"key {principal.key_id} is of role {principal.role.value}"
    if not is_loopback(call.shared.host):
        return "this node listens beyond loopback, and asks for no API keys (auth.enabled)"
    if any(name in call.request.headers for name in _FORWARDED):
        return "the request came through a proxy, so it may be anybody's"
    if not is_loopback(hostname(call.request.headers.get("Host", ""))):
        return "the node was not asked under a name of loopback, such as localhost"
    return ""


def is_own_machine(call: Call) -> bool:
    """Whether the request has certainly not left this machine."""
    headers = call.request.headers
    return (
        is_loopback(call.shared.host)
        and not any(name in headers for name in _FORWARDED)
        and is_loopback(hostname(headers.get("Host", "")))
    )


def require_may_act(call: Call) -> None:
    """Raises ReadOnly."""
    problem = obstacle(call)
    if problem:
        raise ReadOnly(f"the console may not change anything: {problem}")
