"""Which message a request means: by its place in the log, or by the id that its producer gave it.

A path's id is `topic:partition:offset`. With `?topic=` it is a producer's `message_id` in that
topic, whatever it looks like: so an id that holds colons is never taken for a place.
"""

from __future__ import annotations

from goqueue.wire.errors import BadRequest, NotFound, Unavailable
from goqueue.wire.ids import MessageId, validate_topic_name
from goqueue.wire.layout import DEFAULT_LIMITS
from node.api.search import SearchFilter, SearchPage
from node.http.request.call import Call

ALIKE_MAX = 10
"""Messages of one id that are named: beside the newest, which is the one that is meant."""


async def find_message(call: Call) -> tuple[MessageId, list[str]]:
    """The message, and the ids of others that have the same message id, newest first.

    Raises BadRequest, `NotFound`, and `Unavailable` where part of the topic could not be searched.
    """
    text, topic = call.params["id"], call.query.get("topic")
    if topic is None:
        try:
            return MessageId.parse(text), []
        except BadRequest as error:
            hint = "for a producer's message_id, name its topic: ?topic="
            raise BadRequest(f"{error.message}; {hint}") from None
    validate_topic_name(topic)
    if not 0 < len(text) <= DEFAULT_LIMITS.message_id_bytes_max:
        raise BadRequest(f"a message id has 1 to {DEFAULT_LIMITS.message_id_bytes_max} bytes")
    which = SearchFilter(message_id=text)
    page = await call.broker.lookup.search([topic], which, below=None, limit=ALIKE_MAX)
    places = [_place(page, number) for number in range(len(page.found))]
    if not places:
        if page.not_searched:
            raise _not_searched(text, page)
        raise NotFound(f"no message {text[:64]!r} in {topic}", id=text, topic=topic)
    return places[0], [str(place) for place in places[1:]]


def _place(page: SearchPage, number: int) -> MessageId:
    message = page.found[number].message
    return MessageId(message.topic, message.partition, message.offset)


def _not_searched(text: str, page: SearchPage) -> Unavailable:
    one = page.not_searched[0]
    where = f"{one.topic}:{one.partition}"
    return Unavailable(f"{text[:64]!r} was not found, but {where} was not searched: {one.reason}")
