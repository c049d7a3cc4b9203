"""A network of the nodes' own: a namespace a node, on one bridge, with rules that drop and divert.

All rules of a fault stand in the struck node's namespace, or in its peers' for what they dial.
Clients are on the bridge: they reach a node that no other node reaches.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.chaos.storm.ground import MARK, CommandFailed, do

HTTP_PORT = 8080
PEER_PORT = 7000
LISTENERS_PORT = 9000
"""The first of those for other protocols."""
_DROPS = "chaos"
_DIVERTS = "divert"


@dataclass(frozen=True, slots=True)
class Cut:
    """What is dropped at a node: what comes from, and what goes to, these addresses."""

    others: tuple[str, ...]
    inbound: bool = True
    outbound: bool = True
    percent: int = 100

    def rules(self) -> str:
        share = "" if self.percent >= 100 else f"numgen random mod 100 < {self.percent} "
        listed = ", ".join(self.others)
        chains = ""
        if self.inbound:
            chains += _chain("input", f"ip saddr {{ {listed} }} {share}counter drop")
        if self.outbound:
            chains += _chain("output", f"ip daddr {{ {listed} }} {share}counter drop")
        return f"table inet {_DROPS} {{\n{chains}}}\n"


def _chain(hook: str, *rules: str, kind: str = "filter", priority: int = 0) -> str:
    listed = "".join(f"  {rule}\n" for rule in rules)
    return f" chain {hook} {{\n  type {kind} hook {hook} priority {priority}\n{listed} }}\n"


class Network:
    """From `open()` to `close()`; nodes are numbered from 1."""

    def __init__(self) -> None:
        self._bridge = f"gqb{os.getpid()}"
        self._numbers: list[int] = []
        self._prefix = ""

    @property
    def host(self) -> str:
        """Our own address on the bridge."""
        return f"{self._prefix}.254"

    def open(self) -> None:
        """Raises CommandFailed."""
        self._prefix = _free_prefix()
        do("ip", "link", "add", self._bridge, "type", "bridge")
        do("ip", "addr", "add", f"{self.host}/24", "dev", self._bridge)
        do("ip", "link", "set", self._bridge, "up")

    def close(self) -> None:
        if not self._prefix:
            return
        for number in list(self._numbers):
            self.remove(number)
        do("ip", "link", "del", self._bridge)

    def add(self, number: int) -> str:
        """A namespace for this node; its address."""
        name, address = self._name(number), self.address(number)
        outer = f"gqv{os.getpid()}n{number}"
        do("ip", "netns", "add", name)
        self._numbers.append(number)
        do("ip", "link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", name)
        do("ip", "link", "set", outer, "master", self._bridge, "up")
        do("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
        do("ip", "-n", name, "link", "set", "eth0", "up")
        do("ip", "-n", name, "link", "set", "lo", "up")
        return address

    def remove(self, number: int) -> None:
        """Its namespace, which nobody may be in any more."""
        do("ip", "netns", "del", self._name(number))
        self._numbers.remove(number)

    def address(self, number: int) -> str:
        return f"{self._prefix}.{number}"

    def command(self, number: int, command: Sequence[str]) -> list[str]:
        """The command, as it is to be run there. Its process has the pid of this one."""
        return ["nsenter", f"--net=/run/netns/{self._name(number)}", *command]

    def cut(self, number: int, cut: Cut) -> None:
        self._nft(number, cut.rules())

    def dropped(self, number: int) -> list[int]:
        """Packets that were dropped since the cut began, rule by rule."""
        return self._counts(number, _DROPS)

    def mend(self, number: int) -> None:
        self._nft(number, f"table inet {_DROPS}\ndelete table inet {_DROPS}\n")

    def divert(self, number: int, ports: dict[int, int], *, cutting: Sequence[int]) -> None:
        """What this node dials at another node goes to our port instead. Connections that stand
        with the nodes named in `cutting` are reset."""
        rules = [
            f"ip daddr {self.address(other)} tcp dport {PEER_PORT} dnat to {self.host}:{port}"
            for other, port in ports.items()
        ]
        nat = _chain("output", *rules, kind="nat", priority=-100)
        script = f"table ip {_DIVERTS} {{\n{nat}}}\n"
        if cutting:
            there = ", ".join(self.address(other) for other in cutting)
            reset = "counter reject with tcp reset"
            away = _chain(
                "output",
                f"ip daddr {{ {there} }} tcp dport {PEER_PORT} {reset}",
                f"ip daddr {{ {there} }} tcp sport {PEER_PORT} {reset}",
            )
            script += f"table inet {_DROPS} {{\n{away}}}\n"
        self._nft(number, script)

    def undivert(self, number: int) -> None:
        self._nft(number, f"table ip {_DIVERTS}\ndelete table ip {_DIVERTS}\n")
        self.mend(number)

    def narrow(self, number: int, kbit_s: int) -> None:
        """All that this node sends waits for its turn on a slow line."""
        self._tc(number, "replace", "tbf", "rate", f"{kbit_s}kbit", "burst", "3kb", "latency", "1s")

    def waited(self, number: int) -> int:
        """Packets that had to wait for the slow line."""
        said = do("tc", "-n", self._name(number), "-s", "qdisc", "show", "dev", "eth0")
        found = re.search(r"overlimits (\d+)", said)
        return int(found[1]) if found else 0

    def widen(self, number: int) -> None:
        do("tc", "-n", self._name(number), "qdisc", "del", "dev", "eth0", "root")

    def _tc(self, number: int, verb: str, *words: str) -> None:
        do("tc", "-n", self._name(number), "qdisc", verb, "dev", "eth0", "root", *words)

    def _nft(self, number: int, script: str) -> None:
        do(*self.command(number, ["nft", "-f", "-"]), text=script)

    def _counts(self, number: int, table: str) -> list[int]:
        said = do(*self.command(number, ["nft", "-j", "list", "table", "inet", table]))
        found: list[dict[str, Any]] = json.loads(said)["nftables"]
        return [
            part["counter"]["packets"]
            for item in found
            for part in item.get("rule", {}).get("expr", [])
            if "counter" in part
        ]

    def _name(self, number: int) -> str:
        return f"{MARK}-{os.getpid()}-{number}"


def _free_prefix() -> str:
    used = do("ip", "-o", "addr")
    for offset in range(2000):
        number = os.getpid() + offset
        prefix = f"10.{200 + number // 250 % 50}.{number % 250}"
        if f" {prefix}." not in used:
            return prefix
    raise CommandFailed("no network is free")
