"""Who may change something from the console: one question, for authentication to answer later."""

from __future__ import annotations

from goqueue.wire.errors import GoQueueError
from node.http.call import Call
from node.http.guard import hostname, is_loopback

_FORWARDED = ("Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-IP")


class ReadOnly(GoQueueError):
    """The console shows, and changes nothing, for this caller."""

    code, http_status, text = "console_read_only", 403, "the console may not change anything here"


def may_act(call: Call) -> bool:
    """Whether the caller may redrive and purge. There are no users yet: whoever can reach a node
    that listens on loopback only has the machine, and is trusted with it."""
    return not obstacle(call)


def obstacle(call: Call) -> str:
    """Why the caller may not act; empty where it may.

    A name that is not loopback's in `Host` is a page elsewhere whose name was made to lead here,
    or a proxy on this machine that lets others in, as forwarding headers are.
    """
    if not is_loopback(call.shared.host):
        return "this node listens beyond loopback, and there are no users to tell apart yet"
    if any(name in call.request.headers for name in _FORWARDED):
        return "the request came through a proxy, so it may be anybody's"
    if not is_loopback(hostname(call.request.headers.get("Host", ""))):
        return "the node was not asked under a name of loopback, such as localhost"
    return ""


def require_may_act(call: Call) -> None:
    """Raises ReadOnly."""
    problem = obstacle(call)
    if problem:
        raise ReadOnly(f"the console may not change anything: {problem}")
