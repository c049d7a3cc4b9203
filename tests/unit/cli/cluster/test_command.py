"""`goqueue-cli cluster` and `topic partitions`: growing, shrinking and moving, line by line."""

from __future__ import annotations

import dataclasses
import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.cluster import brokers
from cli.run import progress as following
from cli.run.options import byte_rate
from coordinator.errors import TooFewBrokers
from node.placement.moves import MoveProgress
from tests.three_brokers import three_brokers
from tests.unit.cli.conftest import Shell

TABLE = ("-o", "table")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "LOOK_S", 0.001)
    monkeypatch.setattr(brokers, "LOOK_S", 0.001)


class Operator(Shell):
    """Its node was told of two more brokers."""

    def __init__(self, shell: Shell) -> None:
        super().__init__(shell.node, shell.clock, shell.loop)
        self.brokers = self.wait(three_brokers(self.node))

    def move(self, partitions: int) -> None:
        """So many of the partitions that are on their way arrive."""
        self.wait(self.brokers.move(partitions))

    def speaks(self, node: str, level: int) -> None:
        """The broker runs a version that speaks this level, too."""
        self.wait(self.brokers.add(node, level=level))


@pytest.fixture
def three(shell: Shell) -> Operator:
    """Three brokers, of which the first has the four partitions of `orders`."""
    shell.ok("topic", "create", "orders", "-p", "4")
    return Operator(shell)


def plan(topic: str, *rows: tuple[int, str, str]) -> str:
    return json.dumps(
        {"moves": [{"topic": topic, "partition": n, "from": [a], "to": [b]} for n, a, b in rows]}
    )


# what is there


def test_status_shows_brokers_and_that_nothing_moves(three: Operator) -> None:
    three.brokers.down = {"node-3"}

    assert three.ok("cluster", "status", *TABLE).splitlines() == [
        "BROKER  STATE   ZONE    UP    REPLICAS  LEADERS  LEFT",
        "node-1  active  -       yes   4         4        -",
        "node-2  active  zone-2  yes   0         0        -",
        "node-3  active  zone-3  dead  0         0        -",
        "",
        "Nothing moves.",
        "✗ node-3 is dead",
    ]


def test_status_shows_what_moves_and_what_it_waits_for(three: Operator) -> None:
    three.ok("cluster", "drain", "node-1")
    three.move(1)
    three.brokers.told = MoveProgress("node-2 is catching up", 1 << 20, 0)

    lines = three.ok("cluster", "status", *TABLE).splitlines()

    assert lines[1] == "node-1  draining  -       yes  0         3        3 of 4, 3.0 MiB"
    assert lines[4:7] == [
        "",
        "MOVING:",
        "ID  CAUSE         STATE    DONE    TO COPY  STARTED",
    ]
    assert lines[7].split()[1:-1] == ["drain", "node-1", "running", "1", "of", "4", "3.0", "MiB"]
    assert lines[8:] == [f"waiting: orders:{n}: node-2 is catching up" for n in (1, 2, 3)]


def test_status_tells_what_is_not_whole_though_nothing_moves(
    three: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = dataclasses.replace(three.broker.node.cluster_view(), under_replicated=30, leaderless=1)
    monkeypatch.setattr(three.broker.node, "cluster_view", lambda: view)

    assert three.ok("cluster", "status", *TABLE).splitlines()[-3:] == [
        "Nothing moves.",
        "✗ 30 partitions under-replicated",
        "✗ 1 partition without leader",
    ]


def test_status_for_programs_is_the_servers_answer(three: Operator) -> None:
    found = json.loads(three.ok("cluster", "status"))

    assert [one["id"] for one in found["brokers"]] == ["node-1", "node-2", "node-3"]
    assert found["reassignments"] == []


# a broker comes


def test_a_broker_that_is_there_is_added_at_once(three: Operator) -> None:
    result = three.run("cluster", "add", "node-2", *TABLE)

    assert result.stdout == "✓ node-2 is in the cluster and has 0 replicas\n"
    assert result.stderr == (
        "`goqueue-cli cluster rebalance --dry-run` shows what would move to it.\n"
    )


def test_a_broker_that_is_not_there_is_waited_for_and_how_to_start_it_is_said(
    three: Operator,
) -> None:
    result = three.run("cluster", "add", "node-4", "--within", "10ms", *TABLE)

    assert result.exit_code == 4
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        "Waiting for node-4. If it is not running, start it with the cluster's secret:",
        "  goqueue-cli serve --node-id node-4 --data DIRECTORY --http HOST:8080 --peer-listen "
        "HOST:7000 --secret-file FILE --peer node-2=n2:7000 --peer node-3=n3:7000",
        "Error: node-4 has not joined the cluster",
        "Hint: its log says what it waits for; `cluster status` shows who is there",
    ]


def test_a_broker_that_is_down_is_waited_for_by_its_state(three: Operator) -> None:
    three.brokers.down = {"node-2"}

    result = three.run("cluster", "add", "node-2", "--within", "10ms", *TABLE)

    assert result.exit_code == 4
    assert result.stderr.startswith("Waiting for node-2: the cluster knows it, and it is dead.\n")


def test_an_added_broker_gets_its_share(three: Operator) -> None:
    three.brokers.arrivals = 1

    lines = three.ok("cluster", "add", "node-2", "--rebalance", *TABLE).splitlines()

    assert lines[0] == "✓ node-2 is in the cluster and has 0 replicas"
    assert lines[-1].startswith("✓ Moved 2 partitions (reassignment ")


def test_a_broker_is_added_by_its_url(three: Operator) -> None:
    assert three.ok("cluster", "add", three.url, *TABLE).startswith("✓ node-1 is in the cluster")


# a broker goes


def test_a_drains_dry_run_lists_what_would_move(three: Operator) -> None:
    three.ok("produce", "orders", "-m", "x" * 2000, "--partition", "0")

    lines = ["(0 B)"]
    while any("(0 B)" in line for line in lines):  # what was produced is in files a moment later
        lines = three.ok("cluster", "drain", "node-1", "--dry-run", *TABLE).splitlines()

    assert lines[0].split() == ["TOPIC", "PARTITION", "FROM", "TO", "COPIED"]
    assert [line.split()[:4] for line in lines[1:5]] == [
        ["orders", "0", "node-1", "node-2"],
        ["orders", "1", "node-1", "node-3"],
        ["orders", "2", "node-1", "node-2"],
        ["orders", "3", "node-1", "node-3"],
    ]
    assert lines[5] == ""
    assert lines[6].startswith("4 partitions, 4 replicas to copy (2.")
    assert json.loads(three.ok("cluster", "status"))["brokers"][0]["state"] == "active"
    empty = three.ok("cluster", "drain", "node-2", "--dry-run", *TABLE)
    assert empty == "Nothing would move: node-2 has no replicas.\n"


def test_a_drain_is_begun_and_says_how_it_is_called_off(three: Operator) -> None:
    result = three.run("cluster", "drain", "node-1", "--throttle", "50MB", *TABLE)

    assert result.stdout == "✓ Draining node-1: 4 replicas to move to other brokers\n"
    assert result.stderr == (
        "`goqueue-cli cluster status` shows how far it is, "
        "`goqueue-cli cluster undrain node-1` calls it off.\n"
    )
    drain = json.loads(three.ok("cluster", "status"))["brokers"][0]["drain"]
    assert drain["throttle_bytes_per_sec"] == 50_000_000
    undrained = three.ok("cluster", "undrain", "node-1", *TABLE)
    assert undrained == "✓ node-1 is active and has 4 replicas\n"


def test_a_drain_is_followed_by_lines_and_the_broker_removed(three: Operator) -> None:
    three.brokers.arrivals = 1
    three.brokers.told = MoveProgress("", 512, 2048)

    result = three.run("cluster", "drain", "node-1", "--remove", *TABLE)

    assert result.stdout.splitlines() == [
        "Draining node-1: 2 of 4 replicas left, 1.0 KiB to copy at 4.0 KiB/s",
        "Draining node-1: 1 of 4 replicas left, 512 B to copy at 2.0 KiB/s",
        "✓ node-1 is drained: it holds nothing",
        "✓ Removed node-1 from the cluster",
    ]
    assert result.stderr == ("Stop its process; with an empty data directory it could join anew.\n")


def test_a_drain_is_followed_by_programs_as_objects(three: Operator) -> None:
    three.brokers.arrivals = 1

    looks = [
        json.loads(line) for line in three.ok("cluster", "drain", "node-1", "--wait").splitlines()
    ]

    assert [one["state"] for one in looks] == ["draining", "draining", "drained"]
    again = json.loads(three.ok("cluster", "drain", "node-1", "--wait"))
    assert again["state"] == "drained"


def test_a_drain_on_a_terminal_is_a_bar(three: Operator, on_a_terminal: None) -> None:
    three.brokers.arrivals = 1

    result = three.run("cluster", "drain", "node-1", "--wait")

    assert result.exit_code == 0
    assert result.stdout == "✓ node-1 is drained: it holds nothing\n"


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C reaches this process, also where whoever started it has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_stops_the_looking_only_and_says_how_to_call_it_off(
    three: Operator, monkeypatch: pytest.MonkeyPatch, interruptible: None
) -> None:
    monkeypatch.setattr(following._Lines, "show", lambda *_: signal.raise_signal(signal.SIGINT))

    result = three.run("cluster", "drain", "node-1", "--wait", *TABLE)

    assert result.exit_code == 130
    assert result.stderr == (
        "The drain of node-1 goes on. `goqueue-cli cluster status` shows it, "
        "`goqueue-cli cluster undrain node-1` calls it off.\n"
    )
    assert json.loads(three.ok("cluster", "status"))["brokers"][0]["state"] == "draining"


def test_a_broker_that_holds_something_is_not_removed(three: Operator) -> None:
    result = three.run("cluster", "remove", "node-1", "--yes")

    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        "Error: node-1 is active (replicas: 4): drain it first (broker_not_empty)",
        "Hint: `goqueue-cli cluster drain NAME --wait` empties it",
    ]


def test_removing_needs_a_yes_where_nobody_can_be_asked(three: Operator) -> None:
    result = three.run("cluster", "remove", "node-2")

    assert (result.exit_code, result.stderr) == (2, "Error: removing node-2 needs --yes\n")


@pytest.mark.parametrize("verb", ["drain", "undrain", "remove"])
def test_an_unknown_broker_is_not_found(three: Operator, verb: str) -> None:
    result = three.run("cluster", verb, "node-9", *(["--yes"] if verb == "remove" else []))

    assert result.exit_code == 3
    assert result.stderr.splitlines() == [
        "Error: broker not found: node-9 (unknown_broker)",
        "Hint: `goqueue-cli cluster status` shows the brokers",
    ]


def test_a_drain_that_leaves_too_few_says_what_to_do(three: Operator) -> None:
    three.brokers.arrivals = 4
    three.ok("topic", "alter", "orders", "--replication-factor", "3", "--wait")

    result = three.run("cluster", "drain", "node-3")

    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        "Error: 2 brokers would be left for 3 replicas of a partition (too_few_brokers)",
        "Hint: add a broker (`cluster add`), or lower the topics' replication factor",
    ]


# moves


def test_a_rebalance_is_shown_begun_followed_and_cancelled(three: Operator) -> None:
    lines = three.ok("cluster", "rebalance", "--dry-run", *TABLE).splitlines()
    assert lines[-1] == "2 partitions, 2 replicas to copy (0 B)"

    result = three.run("cluster", "rebalance", *TABLE)
    id = result.stdout.removesuffix(")\n").split()[-1]
    assert result.stdout == f"✓ Moving 2 partitions (reassignment {id})\n"
    assert result.stderr == (
        f"`goqueue-cli cluster moves {id}` shows how far it is, "
        f"`goqueue-cli cluster cancel {id}` calls it off.\n"
    )

    three.move(1)
    shown = three.ok("cluster", "moves", id, *TABLE).splitlines()
    assert shown[:4] == [
        f"ID:         {id}",
        "Cause:      rebalance",
        "State:      running",
        "Partitions: 1 of 2 done",
    ]
    assert shown[-2:] == [
        "orders  0          node-1  node-2  arrived  0 B      -",
        "orders  1          node-1  node-3  moving   0 B      -",
    ]

    told = three.ok("cluster", "cancel", id, *TABLE)
    assert told == f"✓ Reassignment {id} is cancelled: 1 arrived, 1 returned\n"
    assert three.ok("cluster", "moves", *TABLE) == "Nothing moves.\n"
    listed = three.ok("cluster", "moves", "--all", *TABLE).splitlines()
    assert listed[1].split()[:6] == [id, "rebalance", "cancelled", "2", "of", "2"]


def test_a_rebalance_is_waited_for(three: Operator) -> None:
    three.brokers.arrivals = 1

    lines = three.ok("cluster", "rebalance", "--wait", *TABLE).splitlines()

    assert lines[-1].startswith("✓ Moved 2 partitions (reassignment ")
    even = three.ok("cluster", "rebalance", *TABLE)
    assert even == "✓ Nothing to move: the brokers have equal shares\n"


def test_a_reassignment_is_watched_again(three: Operator) -> None:
    id = json.loads(three.ok("cluster", "rebalance"))["id"]
    three.brokers.arrivals = 1

    lines = three.ok("cluster", "moves", id, "--wait", *TABLE).splitlines()

    assert lines[0] == f"Reassignment {id}: 1 of 2 partitions"
    assert lines[1:4] == [f"ID:         {id}", "Cause:      rebalance", "State:      done"]
    assert three.run("cluster", "moves", "--wait").exit_code == 2


def test_who_waited_for_a_move_that_was_called_off_is_not_told_that_it_is_done(
    three: Operator,
) -> None:
    id = json.loads(three.ok("cluster", "rebalance"))["id"]
    three.move(1)
    three.ok("cluster", "cancel", id)

    for format in ("table", "json"):
        result = three.run("cluster", "moves", id, "--wait", "-o", format)

        assert result.exit_code == 1
        assert result.stderr.splitlines()[0] == (
            f"Error: reassignment {id} was called off: 1 arrived, 1 returned"
        )


def test_who_waited_for_a_move_that_a_later_plan_took_over_is_told_so(three: Operator) -> None:
    first = plan("orders", (0, "node-1", "node-2")).encode()
    id = json.loads(three.ok("cluster", "reassign", "-f", "-", stdin=first))["id"]
    later = plan("orders", (0, "", "node-3")).replace('"from": [""], ', "").encode()
    three.ok("cluster", "reassign", "-f", "-", stdin=later)

    result = three.run("cluster", "moves", id, "--wait", *TABLE)

    assert result.exit_code == 1
    assert result.stderr.splitlines()[0] == (
        f"Error: reassignment {id} was overtaken by later plans: 1 overtaken"
    )


def test_a_limit_says_that_more_is_left(three: Operator) -> None:
    out = three.ok("cluster", "rebalance", "--dry-run", "-n", "1", *TABLE)

    assert out.splitlines()[-1] == (
        "1 partition, 1 replica to copy (0 B); more is left for a further plan"
    )


def test_a_plan_is_read_shown_and_carried_out(three: Operator, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text(plan("orders", (2, "node-1", "node-3")))

    dry = three.ok("cluster", "reassign", "--file", str(file), "--dry-run", *TABLE).splitlines()
    assert dry == [
        "TOPIC   PARTITION  FROM    TO      COPIED",
        "orders  2          node-1  node-3  0 B",
        "",
        "1 partition, 1 replica to copy (0 B)",
    ]
    three.brokers.arrivals = 1
    done = three.ok("cluster", "reassign", "--file", str(file), *TABLE)
    assert done.startswith("✓ Moved 1 partition (reassignment ")

    stale = three.run("cluster", "reassign", "--file", str(file))
    assert stale.exit_code == 1
    assert stale.stderr.splitlines() == [
        "Error: partitions have moved since this was planned (overtaken)",
        "Hint: look where the partitions are now, and plan again",
    ]


def test_what_a_dry_run_prints_is_a_plan(three: Operator) -> None:
    told = three.ok("cluster", "rebalance", "--dry-run", "-o", "json")

    out = three.ok("cluster", "reassign", "--file", "-", *TABLE, stdin=told.encode())

    assert out.startswith("✓ Moving 2 partitions")


@pytest.mark.parametrize("text", ["", "{", "5", '{"moves": 5}', '["a"]'])
def test_a_file_that_is_no_plan_is_a_usage_error(three: Operator, text: str) -> None:
    result = three.run("cluster", "reassign", "--file", "-", stdin=text.encode())

    assert result.exit_code == 2
    assert result.stderr.startswith("Error: -: not ")


def test_an_unknown_reassignment_is_not_found_and_a_word_is_a_usage_error(three: Operator) -> None:
    unknown = three.run("cluster", "cancel", "99")
    assert unknown.exit_code == 3
    assert unknown.stderr.splitlines() == [
        "Error: reassignment not found: 99 (unknown_reassignment)",
        "Hint: `goqueue-cli cluster moves --all` shows them",
    ]
    assert three.run("cluster", "moves", "first").exit_code == 2


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("1000", 1000),
        ("50MB", 50_000_000),
        ("10 MiB/s", 10 << 20),
        ("1.5k", 1500),
        ("2gib", 2 << 30),
        ("7B", 7),
    ],
)
def test_rates_are_written_as_people_write_them(text: str, rate: int) -> None:
    assert byte_rate("--throttle", text) == rate


@pytest.mark.parametrize("text", ["", "fast", "-1", "5XB", "1e3"])
def test_what_is_no_rate_is_a_usage_error(three: Operator, text: str) -> None:
    result = three.run("cluster", "drain", "node-1", "--throttle", text)

    assert result.exit_code == 2
    assert result.stderr.startswith(f"Error: --throttle: {text!r} is not a rate such as 50MB")


# topics


def test_partitions_are_shown_with_where_they_move(three: Operator) -> None:
    three.ok("cluster", "drain", "node-1")
    three.move(3)
    three.brokers.told = MoveProgress("node-3 is catching up", 0, 0)

    assert three.ok("topic", "partitions", "orders", *TABLE).splitlines() == [
        "PARTITION  LEADER  VOTERS  IN SYNC  LEARNING  MOVING TO  SIZE  WAITING",
        "0          node-2  node-2  -        -         -          0 B   -",
        "1          node-3  node-3  -        -         -          0 B   -",
        "2          node-2  node-2  -        -         -          0 B   -",
        "3          node-1  node-1  node-1   -         node-3     0 B   node-3 is catching up",
    ]


def test_partitions_are_added(three: Operator) -> None:
    dry = three.ok("topic", "partitions", "orders", "--count", "6", "--dry-run", *TABLE)
    assert dry == "✓ Would add 2 partitions to orders, which has 4\n"

    result = three.run("topic", "partitions", "orders", "--count", "6", *TABLE)
    assert result.stdout == "✓ Added 2 partitions to orders: it has 6 now\n"
    assert result.stderr == (
        "Messages stay where they are. "
        "A key's new messages may go to another partition than its earlier ones.\n"
    )

    same = three.ok("topic", "partitions", "orders", "--count", "6", *TABLE)
    assert same == "✓ orders has 6 partitions already\n"
    fewer = three.run("topic", "partitions", "orders", "--count", "3")
    assert fewer.exit_code == 1
    assert fewer.stderr == (
        "Error: count: 3 is fewer than the 6 there are; none can be taken away (invalid_config)\n"
    )
    assert three.run("topic", "partitions", "nothing").exit_code == 3


def test_a_dry_run_refuses_what_never_could_be(three: Operator) -> None:
    words = ("topic", "partitions", "orders", "--count", "10001")

    tried, done = three.run(*words, "--dry-run"), three.run(*words)

    assert (tried.exit_code, done.exit_code) == (1, 1)
    told = tried.stderr.splitlines()[0]
    assert done.stderr.splitlines()[0].rpartition(" (")[0] == told


def test_a_dry_run_answers_what_stands_in_the_way(three: Operator) -> None:
    words = ("topic", "alter", "orders", "--replication-factor", "4")

    done, tried = three.run(*words), three.run(*words, "--dry-run")
    shown = three.run(*words, "--dry-run", *TABLE)

    assert (done.exit_code, tried.exit_code, shown.exit_code) == (1, 0, 0)
    refusal = json.loads(tried.stdout)["refusal"]
    assert done.stderr.startswith(f"Error: {refusal['error']} (too_few_brokers)")
    assert f"would be refused now: {refusal['error']} (too_few_brokers)" in shown.stderr


@pytest.mark.parametrize("verb", ["drain node-1", "rebalance"])
def test_a_dry_run_of_a_move_answers_what_stands_in_the_way(
    three: Operator, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    async def refuse(*_: object, **__: object) -> object:
        raise TooFewBrokers("2 brokers are left, and 3 copies wanted")

    for name in ("plan_drain", "plan_rebalance"):
        monkeypatch.setattr(three.broker.placement, name, refuse)

    tried = three.run("cluster", *verb.split(), "--dry-run")

    assert tried.exit_code == 0
    assert json.loads(tried.stdout)["refusal"]["code"] == "too_few_brokers"


def test_a_replication_factor_that_can_be_is_planned(three: Operator) -> None:
    assert three.ok("topic", "alter", "orders", "--replication-factor", "3", "--dry-run", *TABLE)


def test_a_replication_factor_is_altered_and_followed(three: Operator) -> None:
    result = three.run("topic", "alter", "orders", "--replication-factor", "2", *TABLE)
    assert result.stdout == "✓ Altered topic orders: replication_factor=2\n"
    assert result.stderr == (
        "`goqueue-cli topic partitions orders` shows its copies come and go.\n"
    )

    three.brokers.arrivals = 1
    lines = three.ok(
        "topic", "alter", "orders", "--replication-factor", "2", "--wait", *TABLE
    ).splitlines()
    assert lines == [
        "✓ Altered topic orders: replication_factor=2",
        "Replicas of orders: 2 of 4 partitions",
        "Replicas of orders: 3 of 4 partitions",
        "✓ Every partition of orders is where it should be",
    ]


def test_a_broker_of_another_cluster_is_not_added(
    three: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    views = iter(["ours", "theirs"])
    view = three.broker.node.cluster_view

    def told() -> object:
        return dataclasses.replace(view(), cluster_id=next(views))

    monkeypatch.setattr(three.broker.node, "cluster_view", told)

    result = three.run("cluster", "add", three.url)

    assert result.exit_code == 1
    assert result.stderr == f"Error: node-1 at {three.url} belongs to another cluster\n"


# versions


def test_versions_and_what_waits_for_them_are_shown(three: Operator) -> None:
    three.speaks("node-2", 2)

    text = three.ok("cluster", "version", *TABLE)

    assert "Finished level: 1" in text
    assert "Next level: 2" in text
    assert "node-3 runs an unknown version, which speaks level 1" in text


def test_upgrade_is_refused_while_a_broker_does_not_speak_the_level(three: Operator) -> None:
    three.speaks("node-2", 2)

    ahead = three.run("cluster", "upgrade", "--dry-run")
    refused = three.run("cluster", "upgrade", "--finish")

    assert (ahead.exit_code, json.loads(ahead.stdout)["next_level"]) == (0, 2)
    assert json.loads(ahead.stdout)["waiting"]
    assert refused.exit_code == 1
    assert "level 2 can't be finished yet: node-3 runs" in refused.stderr


def test_upgrade_finishes_the_level_that_all_brokers_speak(three: Operator) -> None:
    for name in ("node-2", "node-3"):
        three.speaks(name, 2)

    assert "level 2 is finished" in three.ok("cluster", "upgrade", "--finish", *TABLE)
    assert "Nothing to finish." in three.ok("cluster", "version", *TABLE)
    assert three.broker.upgrade.version().level == 2


def test_upgrade_wants_to_be_told_which_of_both(three: Operator) -> None:
    assert three.run("cluster", "upgrade").exit_code == 2
    assert three.run("cluster", "upgrade", "--dry-run", "--finish").exit_code == 2
