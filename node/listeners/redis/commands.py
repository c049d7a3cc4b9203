"""All commands by their names, and COMMAND, which tells of them."""

from __future__ import annotations

from node.listeners.redis import connection, groups, lists, miniqueue, pending, streams
from node.listeners.redis.client import Client
from node.listeners.redis.command import NO_KEY, Command
from node.listeners.redis.miniqueue import wants
from node.listeners.redis.replies import RedisError, Reply, Simple
from node.listeners.redis.scan import Run

SHOWN_CHARACTERS_MAX = 64


async def _one_published(client: Client, arguments: list[bytes]) -> Reply:
    raise AssertionError("commands that store something are answered together")


PUBLISHING = (
    Command("XADD", _one_published, "publish", 4, key_at=0, is_write=True),
    Command("LPUSH", _one_published, "publish", 2, key_at=0, is_write=True),
    Command("RPUSH", _one_published, "publish", 2, key_at=0, is_write=True),
    Command("PUBLISH", _one_published, "publish", 2, 2, key_at=0, is_write=True),
)
"""See `node.listeners.redis.publishing`."""


async def command(client: Client, arguments: list[bytes]) -> Reply:
    """All of them; those of one family are told once."""
    client.is_introduced = True
    return [_told(*item) for item in sorted(_SHOWN.items())]


async def command_count(client: Client, _arguments: list[bytes]) -> Reply:
    client.is_introduced = True
    return len(_SHOWN)


async def command_info(client: Client, arguments: list[bytes]) -> Reply:
    """`[name ...]`: nothing for one that is not known."""
    client.is_introduced = True
    names = [name.decode(errors="replace").lower() for name in arguments] or sorted(_SHOWN)
    return [_told(name, _SHOWN[name]) if name in _SHOWN else None for name in names]


async def command_docs(client: Client, arguments: list[bytes]) -> Reply:
    """`[name ...]`: where the documentation is."""
    client.is_introduced = True
    names = [name.decode(errors="replace").lower() for name in arguments] or sorted(_SHOWN)
    where: Reply = "what of Redis' promise holds: docs/reference/redis.md"
    return {name: {"summary": where} for name in names if name in _SHOWN}


def _told(name: str, one: Command) -> Reply:
    """Name, arity, flags, first key, last key, step: as Redis 2.8.13 told it, and all since."""
    arity = one.least + 1 if one.most == one.least else -(one.least + 1)
    key = 0 if one.key_at == NO_KEY else one.key_at + name.count(" ") + 1
    flags: list[Reply] = [Simple("write" if one.is_write else "readonly")]
    if one.may_wait:
        flags.append(Simple("blocking"))
    return [name, arity, flags, key, key, 1 if key else 0]


COMMANDS = {
    one.name: one
    for one in (
        *PUBLISHING,
        *connection.TABLE,
        *streams.TABLE,
        *groups.TABLE,
        *pending.TABLE,
        *lists.TABLE,
        *miniqueue.TABLE,
        Command("COMMAND", command, "openapi", 0, 0),
        Command("COMMAND COUNT", command_count, "openapi", 0, 0),
        Command("COMMAND INFO", command_info, "openapi"),
        Command("COMMAND LIST", command, "openapi", 0, 0),
        Command("COMMAND DOCS", command_docs, "openapi"),
    )
}
FAMILIES = frozenset(name.partition(" ")[0] for name in COMMANDS if " " in name)
"""First words of commands of two."""
_BY_WORD = {name.encode(): one for name, one in COMMANDS.items()}
_STORING = {one.name.encode(): one for one in PUBLISHING}
_FAMILY_WORDS = frozenset(name.encode() for name in FAMILIES)
_SHOWN = {name.partition(" ")[0].lower(): one for name, one in reversed(COMMANDS.items())}


def command_of(said: list[bytes]) -> tuple[Command, list[bytes]]:
    """The command that was said, and its arguments. Raises RedisError for one that is none."""
    word = said[0]
    known = _BY_WORD.get(word)
    if known is None or word in _FAMILY_WORDS:
        word = word.upper()
        known = _BY_WORD.get(word)
        if word in _FAMILY_WORDS and len(said) > 1:
            known = _BY_WORD.get(word + b" " + said[1].upper())
            if known is not None:
                return known, said[2:]
            raise RedisError(
                f"ERR unknown subcommand '{_shown(said[1])}'. This server has"
                f" {', '.join(_of_family(word.decode()))}."
            )
    if known is None:
        raise unknown(said)
    return known, said[1:]


def unknown(said: list[bytes]) -> RedisError:
    """In Redis' words."""
    if said[0].upper() in _FAMILY_WORDS:
        return RedisError(f"ERR wrong number of arguments for '{_shown(said[0]).lower()}' command")
    begins = " ".join(f"'{_shown(word)}'" for word in said[1:4])
    return RedisError(
        f"ERR unknown command '{_shown(said[0])}', with args beginning with: {begins}"
    )


def unknown_to_miniqueue(said: list[bytes]) -> RedisError:
    """In miniqueue's."""
    return RedisError(f"unknown command '{_shown(said[0])}'")


def storing(run: Run) -> Command | None:
    """The command that this run is, again and again, where that stores something and the run has
    as many words as it takes."""
    word, *_ = names = run.columns[0]
    known = _STORING.get(word) or _STORING.get(word.upper())
    if known is None or names.count(word) < len(names):
        return None
    return known if known.least <= len(run.columns) - 1 <= known.most else None


def takes(one: Command, arguments: list[bytes]) -> bool:
    return one.least <= len(arguments) <= one.most


def wrong_number(one: Command) -> RedisError:
    if one.name == "PUBLISH":
        return wants(3)
    return RedisError(f"ERR wrong number of arguments for '{one.name.lower()}' command")


def _of_family(name: str) -> list[str]:
    return sorted(one for one in COMMANDS if one.startswith(f"{name} "))


def _shown(word: bytes) -> str:
    return word[:SHOWN_CHARACTERS_MAX].decode(errors="backslashreplace")
