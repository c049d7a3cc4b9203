"""Forms as browsers send them."""

from __future__ import annotations

from goqueue.wire.errors import BadRequest
from node.http.call import parse_query
from node.http.console.parts import Visit

FORM_BYTES_MAX = 64 * 1024


async def read_form(visit: Visit) -> dict[str, str]:
    """The fields. Raises BadRequest for what is no form, PayloadTooLarge."""
    kind = visit.request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise BadRequest("a form is expected")
    async with visit.body(FORM_BYTES_MAX) as body:
        return parse_query("?" + body.decode("ascii", "replace"))
