"""Who acts for a group, as requests say it: a member in a generation, nobody, or by force."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from goqueue.wire.errors import BadRequest, StaleGeneration
from node.api.claims import FORCED, Claim

MEMBER_CHARACTERS_MAX = 256

Generation = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Member = Annotated[str, Meta(max_length=MEMBER_CHARACTERS_MAX)]


def required_member(given: str | None) -> str:
    """A member's id. Raises BadRequest."""
    if not given:
        raise BadRequest("member_id is required")
    if len(given) > MEMBER_CHARACTERS_MAX:
        raise BadRequest(f"member_id: more than {MEMBER_CHARACTERS_MAX} characters")
    return given


def claim_of(member: str | None, generation: int | None, *, force: bool | None = False) -> Claim:
    """Who acts: a member in a generation, nobody, or whoever forces it. Raises BadRequest."""
    if force:
        return Claim(member or "", FORCED.generation)
    if generation and not member:
        raise BadRequest("generation needs a member: give member_id, too")
    return Claim(member or "", generation or 0)


def check_not_newer(group: str, asked: int | None, generation: int) -> None:
    """Raises StaleGeneration for a generation that the group has not come to."""
    if asked is not None and asked > generation:
        raise StaleGeneration(
            f"group {group} is in generation {generation}: {asked} is yet to come",
            generation=generation,
            partitions=[],
        )
