"""`goqueue-cli group`: who works on what, how far a group is, and why partitions changed hands."""

from __future__ import annotations

import json

import pytest

from cli.groups.describe import with_seconds
from cli.output.formats import age_text, time_of
from cli.run.session import REPEATS
from goqueue.errors import Unavailable, UnknownGroup
from node.api.members import LagView
from tests.unit.cli.conftest import T0_MS, Shell

NOW = time_of(T0_MS)
ATTEMPTS = REPEATS + 1
"""Of a request to one server."""


@pytest.fixture
def queue(shell: Shell) -> Shell:
    """Topic t of two partitions, with two messages in the first and one in the second."""
    shell.ok("topic", "create", "t", "-p", "2")
    for n, partition in enumerate((0, 0, 1)):
        shell.ok("produce", "t", "-m", f"v{n}", "-p", str(partition))
    shell.ok("group", "create", "g")
    return shell


def lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def table(shell: Shell, *words: str) -> list[list[str]]:
    return [line.split() for line in shell.ok(*words, "-o", "table").splitlines()]


def test_a_list_tells_state_members_generation_and_lag(queue: Shell) -> None:
    queue.ok("group", "create", "idle")
    queue.join("g", "t", session_timeout="5m")
    queue.passes(90_000)

    header, *rows = table(queue, "group", "list")

    assert header == ["GROUP", "STATE", "MEMBERS", "GENERATION", "LAG", "BEHIND", "CREATED"]
    assert rows == [
        ["g", "stable", "1", "1", "3", "1m30s", NOW],
        ["idle", "empty", "0", "0", "0", "0s", NOW],
    ]
    assert [row["total_lag"] for row in lines(queue.ok("group", "list"))] == [3, 0]


def test_a_group_whose_lag_is_not_known_now_is_listed(
    queue: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lag(*_words: object) -> list[LagView]:
        raise UnknownGroup("g")

    monkeypatch.setattr(queue.broker.positions, "lag", lag)

    assert table(queue, "group", "list")[1][:6] == ["g", "empty", "0", "0", "-", "-"]


def test_members_are_listed_with_their_partitions(queue: Shell) -> None:
    first = queue.join("g", "t", client_id="one", instance_id="i-1")
    second = queue.join("g", "t", client_id="two")
    queue.beat("g", first)

    header, *rows = table(queue, "group", "members", "g")

    assert header[:4] == ["MEMBER", "CLIENT", "HOST", "PARTITIONS"]
    assert [(row[0], row[1]) for row in rows] == [(first, "one"), (second, "two")]
    assert sorted(row[3] for row in rows) == ["t:0", "t:1"]
    wide = table(queue, "group", "members", "g")
    assert len(wide) == 3
    found = lines(queue.ok("group", "members", "g"))
    assert [member["instance_id"] for member in found] == ["i-1", ""]


def test_a_group_without_members_says_so(queue: Shell) -> None:
    assert queue.ok("group", "members", "g", "-o", "table") == "No members.\n"


def test_a_description_has_members_positions_and_settings(queue: Shell) -> None:
    member = queue.join("g", "t")
    queue.passes(1_500)

    out = queue.ok("group", "describe", "g", "-o", "table").splitlines()

    assert out[0].split() == ["Group:", "g"]
    for line in ("State: stable", "Generation: 1", "Topics: t", "Mode: exclusive"):
        assert any(shown.split() == line.split() for shown in out)
    assert any(line.split() == ["Lag:", "3", "messages,", "1.5s", "behind"] for line in out)
    at = out.index("MEMBERS:")
    assert out[at + 2].split()[:2] == [member, "worker"]
    at = out.index("PARTITIONS:")
    assert out[at + 1].split()[:6] == ["TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "BEHIND"]
    assert out[at + 2].split()[:6] == ["t", "0", "0", "2", "2", "1.5s"]
    assert out[at + 3].split()[:6] == ["t", "1", "0", "1", "1", "1.5s"]
    assert out[at + 3].split()[-2:] == [member, "no"]
    record = json.loads(queue.ok("group", "describe", "g"))
    assert [one["owner"] for one in record["partitions"]] == [member, member]
    assert record["total_lag"] == 3


def test_lag_is_told_in_messages_and_in_time(queue: Shell) -> None:
    queue.ok("consume", "t", "-g", "g", "-n", "1", "-p", "0")
    queue.clock.now_ms += 20_000

    header, *rows = table(queue, "group", "lag", "g")

    assert header[:6] == ["TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "BEHIND"]
    assert rows[0][:6] == ["t", "0", "1", "2", "1", "20s"]
    assert rows[1][:6] == ["t", "1", "0", "1", "1", "20s"]
    assert rows[-1] == ["2", "messages,", "20s", "behind"]
    assert json.loads(queue.ok("group", "lag", "g", "--topic", "t"))["total_lag"] == 2


def test_offsets_are_listed_by_partition(queue: Shell) -> None:
    queue.ok("consume", "t", "-g", "g")

    assert table(queue, "group", "offsets", "g") == [
        ["TOPIC", "PARTITION", "OFFSET", "END", "LAG"],
        ["t", "0", "2", "2", "0"],
        ["t", "1", "1", "1", "0"],
    ]
    assert lines(queue.ok("group", "offsets", "g"))[0]["committed_offset"] == 2


@pytest.mark.parametrize("verb", ["lag", "offsets", "members", "describe", "rebalances"])
def test_a_group_that_is_not_there_is_not_found(queue: Shell, verb: str) -> None:
    result = queue.run("group", verb, "nope")

    assert result.exit_code == 3
    assert "(unknown_group)" in result.stderr


@pytest.mark.parametrize(
    ("words", "after"),
    [
        (("--to-earliest",), [0, 0]),
        (("--to-latest",), [4, 1]),
        (("--to-offset", "1"), [1, 1]),
        (("--to-timestamp", time_of(T0_MS + 1000)), [2, 1]),
        (("--to-datetime", str(T0_MS + 2000)), [3, 1]),
        (("--by-duration", "90s"), [2, 1]),
        (("--shift-by", "-1"), [3, 0]),
        (("--to-earliest", "--partition", "1"), [0]),
    ],
)
def test_offsets_are_reset_to_where_it_is_said(
    queue: Shell, words: tuple[str, ...], after: list[int]
) -> None:
    for later_ms in (1000, 2000):
        queue.clock.now_ms = T0_MS + later_ms
        queue.ok("produce", "t", "-m", "later", "-p", "0")
    queue.ok("consume", "t", "-g", "g")
    queue.clock.now_ms = T0_MS + 91_000

    planned = json.loads(queue.ok("group", "reset-offsets", "g", "-t", "t", "--dry-run", *words))
    assert [one["committed_offset"] for one in lines(queue.ok("group", "offsets", "g"))] == [4, 1]
    done = json.loads(queue.ok("group", "reset-offsets", "g", "-t", "t", *words))

    assert [one["after"] for one in done["offsets"]] == after
    assert planned["offsets"] == done["offsets"]


@pytest.mark.parametrize(
    "words", [("reset-offsets", "nope", "--to-latest"), ("seek", "nope", "--to", "latest")]
)
def test_a_group_that_is_not_there_is_not_moved(queue: Shell, words: tuple[str, ...]) -> None:
    result = queue.run("group", *words, "-t", "t")

    assert result.exit_code == 3
    assert "(unknown_group)" in result.stderr


def test_a_reset_says_what_comes_again(queue: Shell) -> None:
    queue.ok("consume", "t", "-g", "g")

    would = queue.ok(
        "group", "reset-offsets", "g", "-t", "t", "--to-earliest", "--dry-run", "-o", "table"
    )
    assert would.splitlines() == [
        "✓ Would reset group g in 2 partitions of t: 3 messages replayed, 0 skipped",
        "TOPIC  PARTITION  BEFORE  AFTER  REPLAYED  SKIPPED",
        "t      0          2       0      2         0",
        "t      1          1       0      1         0",
    ]
    assert queue.ok("consume", "t", "-g", "g") == ""

    done = queue.ok("group", "reset-offsets", "g", "-t", "t", "--to-earliest", "-o", "table")

    assert done.splitlines()[0].startswith("✓ Reset group g in 2 partitions of t: 3 messages")
    assert len(queue.ok("consume", "t", "-g", "g").splitlines()) == 3


@pytest.mark.parametrize(
    "words", [(), ("--to-earliest", "--to-latest"), ("--to-offset", "1", "--shift-by", "2")]
)
def test_a_reset_has_one_target(queue: Shell, words: tuple[str, ...]) -> None:
    result = queue.run("group", "reset-offsets", "g", "-t", "t", *words)

    assert result.exit_code == 2
    assert "Hint: give one of --to-earliest, --to-latest" in result.stderr


@pytest.mark.parametrize("verb", [("reset-offsets", "--to-latest"), ("seek", "--to", "latest")])
def test_a_group_with_members_is_moved_only_by_force(queue: Shell, verb: tuple[str, ...]) -> None:
    queue.join("g", "t")
    command, *words = verb

    refused = queue.run("group", command, "g", "-t", "t", *words)

    assert refused.exit_code == 1
    assert "(group_active)" in refused.stderr
    assert "Hint: `goqueue-cli group members NAME` shows them" in refused.stderr
    queue.ok("group", command, "g", "-t", "t", *words, "--force")
    assert json.loads(queue.ok("group", "lag", "g"))["total_lag"] == 0


def test_a_dry_run_of_a_reset_answers_while_the_group_has_members(queue: Shell) -> None:
    queue.join("g", "t")
    words = ("group", "reset-offsets", "g", "-t", "t", "--to-latest", "--dry-run")

    told, shown = queue.run(*words), queue.run(*words, "-o", "table")

    assert (told.exit_code, shown.exit_code) == (0, 0)
    answer = json.loads(told.stdout)
    assert answer["offsets"] and answer["refusal"]["code"] == "group_active"
    assert "Would reset group g" in shown.stdout
    assert "would be refused now: group g has 1 active member (group_active)" in shown.stderr


def test_rebalances_are_listed_newest_first(queue: Shell) -> None:
    first = queue.join("g", "t")
    queue.passes(1000)
    second = queue.join("g", "t")
    queue.passes(40)
    queue.beat("g", first)

    header, *rows = table(queue, "group", "rebalances", "g")

    assert header == ["ID", "CAUSE", "STARTED", "DURATION", "MOVED", "LONGEST", "PAUSE"]
    assert rows[0] == ["2", "join", time_of(T0_MS + 1000), "40ms", "1", "40ms"]
    assert rows[1][:2] == ["1", "join"]
    assert rows[-1][:4] == ["2", "rebalances,", "3", "moves,"]
    assert "MOVES:" not in queue.ok("group", "rebalances", "g", "-o", "table")
    detailed = table(queue, "group", "rebalances", "g", "-v")
    at = detailed.index(["MOVES:"])
    assert detailed[at + 2] == ["2", "t", "1", first, second, "40ms", "0", "no"]
    assert lines(queue.ok("group", "rebalances", "g", "-n", "1"))[0]["moved"] == 1


def test_a_group_without_rebalances_says_so(queue: Shell) -> None:
    assert queue.ok("group", "rebalances", "g", "-o", "table") == "No rebalances.\n"


def test_a_group_with_members_is_deleted_only_by_force(queue: Shell) -> None:
    queue.join("g", "t")

    refused = queue.run("group", "delete", "g", "--yes")

    assert refused.exit_code == 1
    assert "(group_active)" in refused.stderr
    assert queue.ok("group", "delete", "g", "--force", "-o", "table") == "✓ Deleted group g\n"
    assert queue.run("group", "describe", "g").exit_code == 3


def test_how_members_share_a_group_is_set_and_shown(shell: Shell) -> None:
    shell.ok("group", "create", "g", "--mode", "shared", "--session-timeout", "10s")

    out = shell.ok(
        *("group", "set", "g", "--assignor", "range", "--rebalance-timeout", "2m", "-o", "table")
    )

    assert out == "✓ Changed group g: assignor=range, rebalance_timeout=2m\n"
    shown = table(shell, "group", "describe", "g")
    assert ["Mode:", "shared"] in shown
    assert ["Assignor:", "range"] in shown
    assert ["Session", "Timeout:", "10s"] in shown
    assert ["Rebalance", "Timeout:", "2m"] in shown


@pytest.mark.parametrize(
    "words", [("--lane-share", "1"), ("--halt-window", "0"), ("--in-flight-max", "10001")]
)
def test_a_setting_that_no_server_takes_is_a_usage_error(
    queue: Shell, words: tuple[str, ...]
) -> None:
    assert queue.run("group", "set", "g", *words).exit_code == 2


def test_a_parked_key_is_one_line_whatever_the_partitions(shell: Shell) -> None:
    shell.ok("topic", "create", "t", "-p", "3")
    shell.ok("group", "create", "g", "--ordering", "key")
    for partition in range(3):
        shell.ok("produce", "t", "-m", "x", "--key", "k", "-p", str(partition))

    shell.ok("group", "park", "g", "k", "-t", "t")

    out = table(shell, "group", "describe", "g")
    at = out.index(["PARKED", "KEYS:"])
    assert out[at + 1 :] == [["TOPIC", "KEY", "WAITING"], ["t", "k", "3"]]


def test_releasing_says_whether_the_key_was_parked(shell: Shell) -> None:
    shell.ok("topic", "create", "t", "-p", "1")
    shell.ok("group", "create", "g", "--ordering", "key")

    out = shell.ok("group", "release", "g", "k", "-t", "t", "-o", "table")
    assert out == "✓ Key k of t was not parked for group g\n"
    shell.ok("produce", "t", "-m", "x", "--key", "k")
    shell.ok("group", "park", "g", "k", "-t", "t")

    out = shell.ok("group", "release", "g", "k", "-t", "t", "-o", "table")

    assert out == "✓ Key k of t flows again for group g (1 message)\n"


@pytest.fixture
def watched(queue: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A group that is seen twice, with an outage between, and then is no more."""
    ask, looks = queue.broker.positions.lag, []

    async def lag(group: str, topics: list[str] | None = None) -> list[LagView]:
        looks.append(group)
        if 1 < len(looks) <= 1 + ATTEMPTS:
            raise Unavailable("no leader")
        if len(looks) > 2 + ATTEMPTS:
            raise UnknownGroup(group)
        return await ask(group, topics)

    monkeypatch.setattr(queue.broker.positions, "lag", lag)
    return queue


def test_watching_where_there_is_no_terminal_prints_lines(watched: Shell) -> None:
    result = watched.run("group", "describe", "g", "--watch", "0.01", "-o", "table")

    assert result.exit_code == 3
    assert [line.split()[1:] for line in result.stdout.splitlines()] == [
        ["empty", "generation=0", "members=0", "lag=0", "behind=0s", "dead=0"]
    ] * 2
    assert result.stderr.splitlines()[0] == "no leader; trying again"


def test_watching_in_a_pipe_prints_json_lines(watched: Shell) -> None:
    result = watched.run("group", "describe", "g", "--watch=0.01")

    assert [line["total_lag"] for line in lines(result.stdout)] == [0, 0]
    assert all("time" in line for line in lines(result.stdout))


@pytest.mark.usefixtures("on_a_terminal")
def test_watching_on_a_terminal_redraws(watched: Shell) -> None:
    result = watched.run("group", "describe", "g", "-w", "0.01")

    assert result.stdout.count("\x1b[H\x1b[2J") == 2
    assert result.stdout.count("Group:") == 2
    assert "Max Attempts:" not in result.stdout


@pytest.mark.parametrize(
    ("words", "read"),
    [
        (["g", "--watch"], ["g", "--watch", "2"]),
        (["--watch", "g"], ["--watch", "2", "g"]),
        (["--watch", "5", "g"], ["--watch", "5", "g"]),
        (["-w", "-o", "json", "g"], ["-w", "2", "-o", "json", "g"]),
        (["--watch=3", "g"], ["--watch=3", "g"]),
    ],
)
def test_the_seconds_of_watch_may_be_left_out(words: list[str], read: list[str]) -> None:
    assert with_seconds(words) == read


@pytest.mark.parametrize(
    ("age_ms", "text"),
    [(0, "0s"), (20, "20ms"), (1500, "1.5s"), (60_000, "1m0s"), (3_723_400, "1h2m3s")],
)
def test_an_age_has_the_units_that_fit(age_ms: int, text: str) -> None:
    assert age_text(age_ms) == text


def test_groups_of_nobody_are_listed_and_assigned(queue: Shell) -> None:
    queue.ok("cluster", "upgrade", "--finish")
    queue.ok("group", "create", "other")
    assert [one["name"] for one in lines(queue.ok("group", "list", "--unowned"))] == ["g", "other"]

    said = queue.ok("group", "assign", "g", "--owner", "team-a.", "-o", "table")

    assert said == "✓ Group g belongs to team-a.\n"
    assert [one["name"] for one in lines(queue.ok("group", "list", "--unowned"))] == ["other"]
    rows = queue.ok("group", "list", "-o", "wide").splitlines()
    assert "team-a." in rows[1].split() and "OWNER" in rows[0]
    assert "Owner: team-a." in " ".join(queue.ok("group", "describe", "g", "-o", "table").split())
    assert json.loads(queue.ok("group", "assign", "g", "--owner", "*"))["owner"] == "*"
    assert queue.run("group", "assign", "nobody", "--owner", "x").exit_code != 0
