"""One language: names that were replaced by the words of Kafka, etcd and Raft do not come back.

Each old name stands with what to write instead (`docs/glossary.md` explains the words). A common
English word is refused only where it was a name: as a class, or in the rooms that had it.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("client/goqueue", "log", "raft", "delivery", "coordinator", "node", "cli", "monitoring")
EVERYWHERE = (*PACKAGES, "pipeline", "tests", "benchmarks")

NAMES = {
    "GroupId": "PartitionId: a group is a consumer group",
    "GroupLog": "PartitionLog",
    "GroupSegments": "PartitionSegments",
    "GroupMeta": "LogMeta",
    "GroupTransport": "RaftTransport",
    "CopiedGroups": "CopiedPartitions",
    "GroupsRequest": "PartitionsRequest",
    "packed_groups": "packed_partitions",
    "start_group": "start_raft_group",
    "retire_group": "retire_raft_group",
    "GroupStanding": "GroupLag",
    "EndsCollector": "OffsetsCollector",
    "PartitionEnds": "PartitionOffsets",
    "Chronicle": "OutcomeNotes",
    "chronicle": "outcome_notes",
    "PartitionMentions": "PartitionEntryIndex",
    "MentionFile": "MessageEntryFile",
    "Mentions": "MessageEntryIndex",
    "Survivors": "CompactedSet",
    "CarriedBatch": "ReappendedBatch",
    "CarriedRows": "ReappendedRows",
    "KeptReader": "CompactedReader",
    "encode_carried": "encode_reappended",
    "decode_carried": "decode_reappended",
    "KeyDesk": "KeyAdmin",
    "key_desk": "key_admin",
    "Errands": "BackgroundTasks",
    "errands": "background_tasks",
    "UnderWay": "TaskSet",
    "to_the_end": "run_uncancellable",
    "Strays": "OrphanReplicas",
    "strays": "orphans",
    "Yielding": "LeadershipShedder",
    "PartitionTally": "PartitionCounters",
    "LogTally": "LogCounters",
    "QuietRun": "EmptyRun",
    "Telling": "TracedRequest",
    "raise_floor": "raise_committed_offset",
    "_seat_peers": "_set_peers",
    "_cast_out": "_expel",
}
"""Refused as an identifier anywhere."""

IN_ROOMS = {
    "Membership": ("GroupMembership or BrokerMembership", ("coordinator", "node")),
    "Seat": ("GroupHandle", ("raft",)),
    "seat": ("handle", ("raft",)),
    "Windows": ("FlowControl", ("raft",)),
    "floor": ("committed_offset", ("delivery/group", "delivery/entries", "node/api", "node/rpc")),
    "_raise_floor": ("_raise_committed_offset", ("delivery",)),
    "survivors": ("compacted_set", ("delivery", "node/partition")),
    "mentions": ("message_entries", ("delivery", "node", "log")),
    "Gate": ("Authenticator", ("node",)),
    "gate": ("authenticator", ("node/http",)),
    "Guard": ("CsrfGuard", ("node/http",)),
    "Door": ("AuthService", ("node",)),
    "Doors": ("PortServices", ("node",)),
    "Turns": ("GilYield or RoundRobin", ("node", "client/goqueue")),
    "Upkeep": ("Maintenance", ("node",)),
    "upkeep": ("maintenance", ("node",)),
    "Tally": ("Counters", ("delivery", "log", "node")),
    "tally": ("counters", ("delivery", "log", "node")),
    "Asking": ("ConsumerActivity", ("node",)),
    "Unread": ("UnreadableMessages", ("node",)),
    "trust": ("clear_suspect", ("raft", "log")),
    "doubt": ("mark_suspect", ("raft", "log")),
    "quiet": ("empty_run", ("log",)),
    "little": ("le_bytes", ("log",)),
    "Ends": ("Offsets", ("node/replicas",)),
    "telling": ("traced_request", ("node/http",)),
    "meant": ("find_message", ("node/http/lookup", "node/http/compat")),
    "GroupHost": ("RaftGroupHost", ("raft",)),
}
"""Common words: refused as an identifier in the rooms where they were names."""

MODULES = {
    "errands": "background_tasks",
    "under_way": "task_set",
    "turns": "gil_yield",
    "to_the_end": "uncancellable",
    "strays": "orphans",
    "yielding": "leadership_shedder",
    "upkeep": "maintenance",
    "tally": "counters",
    "asking": "consumer_activity",
    "unread": "unreadable_messages",
    "telling": "request_spans",
    "meant": "message_ref",
    "quiet": "empty_runs",
    "little": "le_columns",
    "edges": "factories",
    "holding": "offset_lookup",
    "ends": "offsets",
    "chronicle": "outcome_notes",
    "mentions": "message_entry_index",
    "survivors": "compacted_set",
    "carried": "reappended",
    "seat": "group_handle",
    "door": "auth_service",
    "gate": "authenticator",
    "guard": "csrf_guard",
    "key_desk": "key_admin",
}
"""Refused as a module of the program."""

GROUP = re.compile(r"_?groups?")
NO_GROUP = re.compile(r"(\w+\[)?(PartitionId|RaftGroup|PartitionLog)\b")
"""What has one of these types is no consumer group, and must not be called one."""
NO_GROUP_NAMED = re.compile(r"\b(PartitionId|RaftGroup|PartitionLog)\b")

TEXT = sorted(name for name in NAMES if re.search(r"[a-z][A-Z]", name))
"""Names that are no words of English: refused in comments and docstrings, too."""


@cache
def sources() -> dict[str, str]:
    own = Path(__file__).resolve()
    paths = [path for folder in EVERYWHERE for path in (ROOT / folder).rglob("*.py")]
    return {str(path.relative_to(ROOT)): path.read_text() for path in paths if path != own}


def identifiers(text: str, names: frozenset[str]) -> Iterator[tuple[int, str]]:
    """(line, name) of those names in code, and of those of TEXT also in what is said of it."""
    spoken = re.compile(rf"\b({'|'.join(TEXT)})\b")
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME and token.string in names:
            yield token.start[0], token.string
        elif token.type in (tokenize.COMMENT, tokenize.STRING):
            for found in spoken.findall(token.string):
                yield token.start[0], found


def refused(path: str, text: str) -> list[str]:
    """Old names of one file, each with the new one."""
    here = {name: new for name, (new, rooms) in IN_ROOMS.items() if is_in(path, rooms)} | NAMES
    if not re.search(rf"\b({'|'.join(here)})\b", text):
        return []
    found = identifiers(text, frozenset(here))
    return [f"{path}:{line}: {name}: write {here[name]}" for line, name in found]


def is_in(path: str, rooms: tuple[str, ...]) -> bool:
    return any(path.startswith(f"{room}/") for room in rooms)


def misnamed_groups(path: str, text: str) -> list[str]:
    """Arguments, fields, variables and functions called a group whose type says otherwise."""
    found: list[str] = []
    if not NO_GROUP_NAMED.search(text):
        return found
    for node in ast.walk(ast.parse(text)):
        name, type_ = "", None
        if isinstance(node, ast.arg):
            name, type_ = node.arg, node.annotation
        elif isinstance(node, ast.AnnAssign):
            target = node.target
            name, type_ = getattr(target, "id", getattr(target, "attr", "")), node.annotation
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            name, type_ = node.name, node.returns
        if type_ is not None and GROUP.fullmatch(name) and NO_GROUP.match(ast.unparse(type_)):
            found.append(f"{path}:{node.lineno}: {name}: {ast.unparse(type_)}")
    return found


def test_no_name_is_one_that_was_replaced() -> None:
    assert len(sources()) > 1000
    assert [one for path, text in sources().items() for one in refused(path, text)] == []


def test_no_module_has_a_name_that_was_replaced() -> None:
    modules = [Path(path) for path in sources() if path.startswith(PACKAGES)]

    assert {str(path): MODULES[path.stem] for path in modules if path.stem in MODULES} == {}


def test_a_group_is_a_consumer_group() -> None:
    assert [one for path, text in sources().items() for one in misnamed_groups(path, text)] == []


@pytest.mark.parametrize(
    ("path", "text", "problem"),
    [
        ("node/a.py", "def f(id: GroupId) -> None: ...\n", "node/a.py:1: GroupId: write"),
        ("tests/a.py", '"""Of a `GroupLog`."""\n', "tests/a.py:1: GroupLog: write"),
        ("raft/a.py", "log.doubt()\n", "raft/a.py:1: doubt: write mark_suspect"),
        ("delivery/group/a.py", "x = group.floor\n", "delivery/group/a.py:1: floor: write"),
    ],
)
def test_an_old_name_is_refused_with_the_new_one(path: str, text: str, problem: str) -> None:
    assert refused(path, text)[0].startswith(problem)


def test_common_words_are_refused_only_where_they_were_names() -> None:
    assert refused("node/a.py", "floor = 1\nseat = quiet = 2\n") == []
    assert refused("raft/a.py", '"""Of the seat and the doubt."""\n') == []


def test_a_group_of_another_type_is_refused() -> None:
    text = "def f(group: PartitionId, groups: list[str]) -> None: ...\n"

    assert misnamed_groups("a.py", text) == ["a.py:1: group: PartitionId"]
