"""Commands about the connection itself: HELLO, AUTH, CLIENT, SELECT, PING, ECHO, INFO, QUIT."""

from __future__ import annotations

import re

from goqueue.wire.errors import Unauthenticated
from node.listeners.redis import words
from node.listeners.redis.client import Client
from node.listeners.redis.command import Command
from node.listeners.redis.replies import OK, RedisError, Reply, Simple
from node.listeners.redis.words import Words

VERSION = "7.0.15"
"""Of Redis, whose commands these are: clients look at it to know what they may send."""
MINIQUEUE = "redis_version:miniqueue_v0.8.0"
NAME_BYTES_MAX = 256
_NAME = re.compile(rb"[!-~]{0,256}")
ANYBODYS, DEFAULT_USER = "health", b"default"


async def ping(client: Client, arguments: list[bytes]) -> Reply:
    if arguments:
        return arguments[0]
    return Simple("PONG" if client.is_introduced else "pong")


async def echo(_client: Client, arguments: list[bytes]) -> Reply:
    return arguments[0]


async def quit_(client: Client, _arguments: list[bytes]) -> Reply:
    client.is_leaving = True
    return OK


async def select(client: Client, arguments: list[bytes]) -> Reply:
    client.is_introduced = True
    if arguments[0] != b"0":
        raise RedisError("ERR DB index is out of range: there is one, 0")
    return OK


async def auth(client: Client, arguments: list[bytes]) -> Reply:
    """`[user] secret`: a key as `id.secret`, or its id and its secret."""
    client.is_introduced = True
    user = arguments[0] if len(arguments) == 2 else DEFAULT_USER
    await _login(client, user, arguments[-1])
    return OK


async def _login(client: Client, user: bytes, secret: bytes) -> None:
    """Raises Unauthenticated, TooManyFailures."""
    token = secret if user == DEFAULT_USER else user + b"." + secret
    try:
        text = token.decode("ascii")
    except UnicodeDecodeError:
        raise Unauthenticated("this is no API key: <id>.<secret>", reason="malformed") from None
    await client.requests.login(client.caller, text)
    client.wire.is_known()


async def hello(client: Client, arguments: list[bytes]) -> Reply:
    """`[2|3 [AUTH user secret] [SETNAME name]]`."""
    given, resp3 = Words(arguments), client.resp3
    if given.left:
        version = given.take()
        if version not in (b"2", b"3"):
            raise RedisError("NOPROTO unsupported protocol version")
        resp3 = version == b"3"
    name = client.name
    while given.left:
        if given.looks_like("AUTH"):
            await _login(client, given.take(), given.take())
        elif given.looks_like("SETNAME"):
            name = _checked_name(given.take())
        else:
            raise RedisError(f"ERR Syntax error in HELLO option '{given.option()[:64]}'")
    await client.admit("openapi")
    client.is_introduced, client.resp3, client.name = True, resp3, name
    return {
        "server": "redis",
        "version": VERSION,
        "proto": 3 if resp3 else 2,
        "id": client.number,
        "mode": "standalone",
        "role": "master",
        "modules": [],
    }


async def info(client: Client, _arguments: list[bytes]) -> Reply:
    if not client.is_introduced:
        return Simple(MINIQUEUE)
    lines = [
        "# Server",
        f"redis_version:{VERSION}",
        "redis_mode:standalone",
        "server_name:goqueue",
        "# Replication",
        "role:master",
        "",
    ]
    return "\r\n".join(lines)


async def set_name(client: Client, arguments: list[bytes]) -> Reply:
    client.is_introduced, client.name = True, _checked_name(arguments[0])
    return OK


async def get_name(client: Client, _arguments: list[bytes]) -> Reply:
    client.is_introduced = True
    return client.name or None


async def set_info(client: Client, arguments: list[bytes]) -> Reply:
    client.is_introduced = True
    name = arguments[0].decode(errors="replace").lower()
    if name not in ("lib-name", "lib-ver"):
        raise RedisError(f"ERR Unrecognized option '{name[:64]}'")
    client.library[name] = _checked_name(arguments[1])
    return OK


async def client_id(client: Client, _arguments: list[bytes]) -> Reply:
    client.is_introduced = True
    return client.number


async def client_info(client: Client, _arguments: list[bytes]) -> Reply:
    client.is_introduced = True
    key = "" if client.caller.principal is None else client.caller.principal.key_id
    library = "".join(f" {name}={value}" for name, value in sorted(client.library.items()))
    return (
        f"id={client.number} addr={client.wire.peer} name={client.name} db=0 user={key}"
        f" resp={3 if client.resp3 else 2}{library}\n"
    )


async def client_flag(client: Client, arguments: list[bytes]) -> Reply:
    """Of what is never done to anybody here: nothing is evicted."""
    client.is_introduced = True
    if arguments[0].upper() not in (b"ON", b"OFF"):
        raise RedisError(words.SYNTAX)
    return OK


def _checked_name(name: bytes) -> str:
    if not _NAME.fullmatch(name):
        raise RedisError(
            "ERR Client names cannot contain spaces, newlines or special characters, nor be longer"
            f" than {NAME_BYTES_MAX}"
        )
    return name.decode()


TABLE = (
    Command("PING", ping, ANYBODYS, 0, 1),
    Command("ECHO", echo, ANYBODYS, 1, 1),
    Command("QUIT", quit_, ANYBODYS),
    Command("SELECT", select, ANYBODYS, 1, 1),
    Command("AUTH", auth, ANYBODYS, 1, 2),
    Command("HELLO", hello, ANYBODYS, 0, 6),
    Command("INFO", info, "openapi"),
    Command("CLIENT SETNAME", set_name, ANYBODYS, 1, 1),
    Command("CLIENT GETNAME", get_name, ANYBODYS, 0, 0),
    Command("CLIENT SETINFO", set_info, ANYBODYS, 2, 2),
    Command("CLIENT ID", client_id, ANYBODYS, 0, 0),
    Command("CLIENT INFO", client_info, ANYBODYS, 0, 0),
    Command("CLIENT NO-EVICT", client_flag, ANYBODYS, 1, 1),
    Command("CLIENT NO-TOUCH", client_flag, ANYBODYS, 1, 1),
)
