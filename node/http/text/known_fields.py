"""Fields that a request does not have are refused, by name and with the nearest one that it has.

A misspelt field that was ignored would be a topic of another size, or a message without its delay.
Unknown query parameters are ignored: proxies and browsers add some.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from msgspec import Struct, inspect

from goqueue.wire.errors import BadRequest

SHOWN_MAX = 80
"""Characters of a name that are compared and shown: finding the nearest name takes their square."""
NEAR = 0.6
"""How alike two names must be, of 1, for one to be meant by the other."""
PLACE_MAX = 160
"""Characters of a place in a request type: those that there are have fewer."""
PLACES_MAX = 1024
"""Places in request types whose field names are remembered: there are a few for each route."""

_UNKNOWN = re.compile(r"Object contains unknown field `(.*?)`(?: - at `\$([^`]*)`)?", re.DOTALL)
_STEP = re.compile(r"\.(\w+)|\[[^\]]*\]")


class Body(Struct, forbid_unknown_fields=True):
    """What every JSON object in a request is: it refuses fields that it does not have."""


class UnknownField(BadRequest):
    """`field` is not known where it stands; `nearest` is what may be meant, or null."""

    code, text = "unknown_field", "the request has a field that is not known"

    def __init__(self, field: str, known: Iterable[str], place: str = "") -> None:
        shown, near = field[:SHOWN_MAX], nearest(field, known)
        where = f"{place}: " if place else ""
        hint = f"; did you mean `{near}`?" if near else ""
        super().__init__(f"{where}unknown field `{shown}`{hint}", field=shown, nearest=near)

    def among(self, problems: Sequence[str]) -> UnknownField:
        """This error, which tells of all these, its own among them."""
        self.message = "; ".join(problems)
        self.data["problems"] = list(problems)
        return self


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like this one, whatever its case and underscores; or None."""
    plain = {_plain(one): one for one in known}
    found = difflib.get_close_matches(_plain(name[:SHOWN_MAX]), plain, 1, NEAR)
    return plain[found[0]] if found else None


def unknown_field(told: str, wanted: Any) -> UnknownField | None:
    """The error that msgspec told of while it decoded a `wanted`, if it is of this kind."""
    found = _UNKNOWN.fullmatch(told)
    if found is None:
        return None
    place = (found[2] or "")[:PLACE_MAX]
    known = _fields_at(wanted, re.sub(r"\d+", "", place))
    return UnknownField(found[1], known, place.lstrip("."))


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "").replace(".", "")


@lru_cache(PLACES_MAX)
def _fields_at(wanted: Any, place: str) -> tuple[str, ...]:
    """The names that objects may have at a place such as `.messages[]` in a document of a type."""
    types = list(_alternatives(inspect.type_info(wanted)))
    for step in _STEP.finditer(place):
        types = [one for held in types for one in _step(held, step[1])]
    return tuple(
        field.encode_name
        for one in types
        if isinstance(one, inspect.StructType)
        for field in one.fields
    )


def _step(held: inspect.Type, name: str | None) -> Iterator[inspect.Type]:
    if isinstance(held, inspect.StructType) and name is not None:
        for field in held.fields:
            if field.encode_name == name:
                yield from _alternatives(field.type)
    elif isinstance(held, inspect.ListType):
        yield from _alternatives(held.item_type)
    elif isinstance(held, inspect.DictType):
        yield from _alternatives(held.value_type)


def _alternatives(told: inspect.Type) -> Iterator[inspect.Type]:
    if isinstance(told, inspect.Metadata):
        yield from _alternatives(told.type)
    elif isinstance(told, inspect.UnionType):
        for one in told.types:
            yield from _alternatives(one)
    else:
        yield told
