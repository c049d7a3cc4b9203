"""Who asks: the API key that a request came with, and what it may do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from goqueue.wire.errors import Forbidden, GoQueueError
from goqueue.wire.ids import DEAD_LETTER_SUFFIX, INTERNAL_PREFIX

EVERY_TOPIC = ("",)
"""The prefixes of a key for all topics: each name begins with nothing."""
EVERY = "*"
"""How that is written among prefixes, for clients."""
_WILD = "*?["


class Role(StrEnum):
    """What a key is for. Each role may what `node.http.auth.policies` says, and nothing else."""

    ADMIN = "admin"
    PRODUCER = "producer"
    CONSUMER = "consumer"
    READONLY = "readonly"


@dataclass(frozen=True, slots=True)
class Principal:
    """An API key whose secret was proved. `prefixes`: what the topics' names begin with that it may
    reach; none of them reaches nothing. `group_prefixes`: of the groups, where it is another."""

    key_id: str
    role: Role
    prefixes: tuple[str, ...] = EVERY_TOPIC
    group_prefixes: tuple[str, ...] | None = None

    @property
    def is_everywhere(self) -> bool:
        """Whether it reaches every topic, and so what belongs to none."""
        return "" in self.prefixes

    def covers(self, topic: str) -> bool:
        """Whether the topic, or the one whose dead letters are meant, is within its prefixes."""
        name = topic.removesuffix(DEAD_LETTER_SUFFIX)
        if name.startswith(INTERNAL_PREFIX):  # the cluster's own: for admins of every topic
            return self.is_everywhere and self.role is Role.ADMIN
        return name.startswith(self.prefixes)

    def covers_pattern(self, pattern: str) -> bool:
        """Whether all that a glob can ever match is within its prefixes: by what stands before its
        first wildcard."""
        at = min((pattern.find(sign) for sign in _WILD if sign in pattern), default=None)
        return pattern[:at].startswith(self.prefixes)

    def require(self, topic: str) -> None:
        """Raises Forbidden for a topic beyond its prefixes, whether there is one or not."""
        if not self.covers(topic):
            raise OutOfScope(self, f"topic {topic[:249]}")

    def require_pattern(self, pattern: str) -> None:
        """Raises Forbidden."""
        if not self.covers_pattern(pattern):
            raise OutOfScope(self, f"pattern {pattern[:249]}")

    @property
    def groups(self) -> tuple[str, ...]:
        """What the names of its groups begin with."""
        return self.prefixes if self.group_prefixes is None else self.group_prefixes

    def reaches(self, group: str, owner: str) -> bool:
        """Whether a group that has an owner is within its prefixes, by its name or its owner's."""
        return group.startswith(self.groups) or owner.startswith(self.groups)

    def owner_of(self, group: str) -> str | None:
        """Whose a group is that this key makes: the longest of its prefixes that the name begins
        with. Where there is none, None: the first one's, if the name is nobody else's."""
        return max(filter(group.startswith, self.groups), key=len, default=None)

    def require_everywhere(self, what: str) -> None:
        """Raises Forbidden for a key that has prefixes."""
        if not self.is_everywhere:
            raise OutOfScope(self, what)


class OutOfScope(Forbidden):
    """The key's role may do this, but not there."""

    def __init__(
        self, principal: Principal, what: str, prefixes: tuple[str, ...] | None = None
    ) -> None:
        self.principal = principal
        prefixes = principal.prefixes if prefixes is None else prefixes
        reach = ", ".join(f"{prefix}*" for prefix in prefixes) or "no topic"
        super().__init__(
            f"{what} is beyond the reach of key {principal.key_id}, which is for {reach}",
            missing="scope",
            key=principal.key_id,
            prefixes=list(prefixes),
        )


class WrongRole(Forbidden):
    """The key is for something else."""

    def __init__(self, principal: Principal, roles: tuple[Role, ...]) -> None:
        self.principal = principal
        names = [role.value for role in roles]
        super().__init__(
            f"key {principal.key_id} is of role {principal.role.value}:"
            f" this needs {' or '.join(names)}",
            missing="role",
            key=principal.key_id,
            roles=names,
        )


def refused_by(error: GoQueueError) -> Principal | None:
    """Whose key was proved, and may not do what was asked; None for any other error."""
    return error.principal if isinstance(error, OutOfScope | WrongRole) else None
