"""Forms as browsers send them."""

from __future__ import annotations

from goqueue.wire.errors import BadRequest
from node.http.budget.memory import Kind
from node.http.console.parts import Visit
from node.http.request.call import parse_query

FORM_BYTES_MAX = 64 * 1024
LOGIN_BYTES_MAX = 8 * 1024
"""A key has 512 characters at most, and where to go then 1,000."""


async def read_form(visit: Visit, bytes_max: int = FORM_BYTES_MAX) -> dict[str, str]:
    """The fields; what the headers tell of who sends it is judged before they are read. Raises
    CrossSite, BadRequest for what is no form, PayloadTooLarge, OverBudget."""
    tokens = visit.parts.tokens
    tokens.check_sender(visit.request)
    kind = visit.request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise BadRequest("a form is expected")
    async with visit.body(bytes_max, Kind.FORMS) as body:
        form = parse_query("?" + body.decode("ascii", "replace"))
    tokens.check(visit.request, form.get("token", ""))
    return form
