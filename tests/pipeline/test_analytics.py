"""The report on a real topic's life: every table equal to plain Python over the same messages and
events, and the page as a browser sees it."""

from __future__ import annotations

import asyncio
import csv
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer
from typer.testing import CliRunner, Result

from goqueue import Client
from goqueue.archive.layout import Kind
from goqueue.wire.batch import LANES
from pipeline.analytics.analysis import INPUTS, Goals, Table
from pipeline.analytics.inputs import NothingToReport, Wanted, archived, live
from pipeline.analytics.page import ROWS_SHOWN_MAX
from pipeline.analytics.queries import TABLES, VIEWS, query
from pipeline.analytics.report import make_report, register
from pipeline.archive.hadoop_store import HadoopStore
from pipeline.archive.run import Run
from pipeline.archive.topics import archive_topics
from pipeline.broker import Broker
from pipeline.options import Options
from pipeline.source.reading import Pace
from tests.cluster.processes import Cluster
from tests.console.chromium import Chromium, find
from tests.pipeline import analytics_python as plain
from tests.pipeline.analytics_python import Facts, Row, ms_of
from tests.pipeline.analytics_scene import PARTITIONS, REPLAY, Made, make_scene

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOALS = Goals(lag_objective_ms=700, lag_target=0.9, top_keys=5)
FINDINGS_ALLOWED = {"duplicate_message_id", "key_order", "key_not_settled"}


@dataclass
class Report:
    """A report on a scene, and what there is to compute it from anew."""

    made: Made
    facts: Facts
    tables: dict[str, Table]
    folder: Path

    def rows(self, name: str) -> list[Row]:
        return rows_of(self.tables[name].rows)


@pytest.fixture(scope="module")
def client(servers: str) -> Iterator[Client]:
    with Client(servers.split(",")) as client:
        yield client


@pytest.fixture(scope="module")
def report(
    spark: SparkSession,
    cluster: Cluster,
    servers: str,
    client: Client,
    tmp_path_factory: pytest.TempPathFactory,
) -> Report:
    folder = tmp_path_factory.mktemp("report")
    made = make_scene(cluster, folder)
    facts = facts_of(client, cluster, made)
    wanted = Wanted(made.topic)
    with interpreted(spark):
        tables = make_report(spark, wanted, GOALS, str(folder), options={"servers": servers})
    return Report(made, facts, tables, folder)


def rows_of(table: Any) -> list[Row]:
    """Of a pyarrow table, times as Unix ms."""
    return [{name: ms_of(value) for name, value in row.items()} for row in table.to_pylist()]


@contextmanager
def interpreted(spark: SparkSession) -> Iterator[None]:
    """For a few hundred rows, making and compiling code for each query takes longer than all else;
    the results are the same."""
    names = ("spark.sql.codegen.wholeStage", "spark.sql.adaptive.enabled")
    before = {name: spark.conf.get(name) for name in names}
    try:
        for name in names:
            spark.conf.set(name, "false")
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def facts_of(client: Client, cluster: Cluster, made: Made) -> Facts:
    """By the library: no Spark."""
    messages = [
        {"partition": m.partition, "offset": m.offset, "ms": m.timestamp_ms, "value": m.value,
         "key": m.key_text, "lane": LANES[m.lane], "message_id": m.message_id,
         "headers": {name: text.decode() for name, text in m.headers}}
        for m in client.messages(made.topic)
    ]  # fmt: skip
    events = [
        {"partition": e.partition, "offset": e.offset, "index": e.index, "seq": e.seq,
         "ms": e.timestamp_ms, "type": e.event_type, "group": e.group, "consumer": e.consumer,
         "reason": e.reason, "attributes": e.attributes or {}}
        for partition in range(PARTITIONS)
        for e in client.events(made.topic, partition)
    ]  # fmt: skip
    groups = {}
    for name, ordering, max_wait_ms, share in (
        (made.ship, "key", 30_000, 5),
        (made.audit, "none", 50, 4),
    ):
        told = cluster[0].ask("GET", f"/groups/{name}").body["created_at"]
        created_ms = plain.ms_of(plain.datetime.fromisoformat(told))
        groups[name] = {"ordering": ordering, "lane_max_wait_ms": max_wait_ms,
                        "lane_share": share, "created_ms": created_ms}  # fmt: skip
    ends = {p: max(m["offset"] for m in messages if m["partition"] == p) for p in range(PARTITIONS)}
    return Facts(messages, events, groups, {p: (0, end + 1) for p, end in ends.items()})


def same(found: Sequence[Row], expected: Sequence[Row]) -> None:
    """The same rows, whatever their order, as far as columns were computed anew; numbers that were
    divided may differ in the last digits."""
    assert found
    names = list(expected[0])
    texts = [name for name in names if any(isinstance(row[name], str) for row in expected)]
    counts = [name for name in names if all(type(row[name]) is int for row in expected)]

    def place(row: Row) -> str:
        return json.dumps([row[name] for name in (*texts, *counts)])

    there = sorted(({name: row[name] for name in names} for row in found), key=place)
    wanted = sorted(expected, key=place)
    assert len(there) == len(wanted)
    for row, other in zip(there, wanted, strict=True):
        for name in names:
            close = isinstance(other[name], float) and row[name] is not None
            other_value = pytest.approx(other[name], abs=1e-9) if close else other[name]
            assert row[name] == other_value, (name, row, other)


def test_the_summary_counts_what_was_done(report: Report) -> None:
    (row,) = report.rows("summary")
    expected = plain.summary(report.facts)

    assert {name: row[name] for name in expected} == expected
    made = report.made
    assert row["messages"] == made.published
    assert row["acknowledged"] == made.acked.total()
    assert row["dead"] == made.dead.total() > 0
    assert row["delayed"] == made.delayed > 0


def test_latencies_are_those_of_plain_python(report: Report) -> None:
    same(report.rows("latency"), plain.latency(report.facts))


def test_lag_and_its_objective_are_those_of_plain_python(report: Report) -> None:
    rows = report.rows("lag_slo")

    same(rows, plain.lag_slo(report.facts, GOALS.lag_objective_ms, GOALS.lag_target))
    assert any(row["over_s"] > 0 for row in rows), "the scene has a lag beyond the objective"
    series = report.rows("lag_series")
    for row in rows:
        peaks = [one["until_s"] for one in series if one["group"] == row["group"]]
        assert row["lag_max_s"] <= max(peaks)


def test_attempts_and_redeliveries_are_those_of_plain_python(report: Report) -> None:
    same(report.rows("attempts"), plain.attempts(report.facts))
    rows = report.rows("redeliveries")
    same(rows, plain.redeliveries(report.facts))
    assert {row["cause"] for row in rows} == {"NACKED", "REDELIVERED"}


def test_dead_letters_are_those_of_plain_python(report: Report) -> None:
    rows = report.rows("dead_letters")

    same(rows, plain.dead_letters(report.facts))
    assert sum(row["deaths"] for row in rows) == report.made.dead.total()


def test_lane_waits_are_those_of_plain_python_and_within_their_bound(report: Report) -> None:
    rows = report.rows("lane_waits")

    same(rows, plain.lane_waits(report.facts))
    assert {row["over_bound"] for row in rows} == {0}
    assert any(row["share_of_bound"] for row in rows), "in the scene some lane lives from its share"


def test_delays_are_those_of_plain_python_and_never_early(report: Report) -> None:
    rows = report.rows("delay_accuracy")

    same(rows, plain.delay_accuracy(report.facts))
    assert {row["early"] for row in rows} == {0}
    assert {row["count"] for row in rows} == {report.made.delayed}


def test_rebalances_are_those_that_the_cluster_remembers(report: Report, cluster: Cluster) -> None:
    told = cluster[0].ask("GET", f"/groups/{report.made.ship}/rebalances").body["rebalances"]

    same(
        report.rows("rebalance_pauses"),
        [
            {"group": report.made.ship, "rebalance": one["id"], "cause": one["cause"],
             "duration_ms": one["duration_ms"], "moved": len(one["moves"]),
             "pause_max_ms": max(move["pause_ms"] for move in one["moves"])}
            for one in told if one["moves"]
        ],
    )  # fmt: skip


def test_keys_and_partitions_are_those_of_plain_python(report: Report) -> None:
    topic = report.made.topic
    same(report.rows("hot_keys"), plain.hot_keys(report.facts, GOALS.top_keys))
    same(report.rows("key_spread"), plain.key_spread(report.facts, topic, GOALS.top_keys))
    same(report.rows("partition_skew"), plain.partition_skew(report.facts, topic))


def test_the_audit_finds_what_plain_python_finds_and_no_bug(report: Report) -> None:
    rows = report.rows("audit")
    found = {(row["check"], row["group"]): row["findings"] for row in rows if row["findings"]}

    assert found == plain.audit(report.facts)
    assert {row["check"] for row in rows if row["verdict"] == "allowed"} == FINDINGS_ALLOWED
    assert [row for row in rows if row["verdict"] == "found"] == []
    listed = report.rows("audit_findings")
    assert len(listed) == sum(found.values())


def test_a_replay_is_compared_with_its_originals(report: Report) -> None:
    figures, changes = plain.replays(
        report.facts, GOALS.replay_id_header, GOALS.replay_origin_header
    )

    assert figures["replay_id"] == REPLAY and figures["changed"] == 1
    same(report.rows("replays"), [figures])
    same(report.rows("replay_changes"), changes)


def test_files_hold_what_the_tables_do(report: Report) -> None:
    import pyarrow.parquet as pq

    for name in TABLES:
        table = report.tables[name].rows
        path = report.folder / "tables" / name
        assert pq.read_table(path.with_suffix(".parquet")).equals(table)
        with path.with_suffix(".csv").open() as lines:
            rows = list(csv.DictReader(lines))
        assert len(rows) == table.num_rows
        told = [json.loads(line) for line in path.with_suffix(".json").read_text().splitlines()]
        assert len(told) == table.num_rows
        if told:
            assert list(told[0]) == table.column_names


def test_headers_of_queries_name_what_they_read_and_give(report: Report) -> None:
    for name in (*VIEWS, *TABLES):
        found = query(name)
        body = " ".join(line for line in found.text.splitlines() if not line.startswith("--"))
        for view in (*VIEWS, *INPUTS):
            words = body.replace("(", " ").replace(")", " ").replace("`", " ").split()
            pairs = pairwise(words)
            read = any(a in ("FROM", "JOIN") and b == view for a, b in pairs)
            assert read == (view in found.reads), f"{name} reads {view}: {read}"
    for name in TABLES:
        for column in report.tables[name].rows.column_names:
            assert column in query(name).columns, f"{name} does not tell of {column}"


def test_a_report_of_one_group_and_window_has_the_figures_of_plain_python(
    spark: SparkSession, servers: str, report: Report, tmp_path: Path
) -> None:
    import pyarrow.parquet as pq

    group, window = report.made.ship, window_of(report.facts)
    facts = plain.narrowed(report.facts, group, *window)

    with interpreted(spark):
        ended = run_report(
            *("--topic", report.made.topic, "--servers", servers, "--group", group),
            *("--from-time", str(window[0]), "--to-time", str(window[1])),
            *("--lag-objective", f"{GOALS.lag_objective_ms}ms"),
            *("--lag-target", str(GOALS.lag_target), "--top-keys", str(GOALS.top_keys)),
            *("--output", str(tmp_path)),
        )
    assert ended.exit_code == 0, ended.output
    read = {name: pq.read_table(tmp_path / "tables" / f"{name}.parquet") for name in TABLES}
    tables = {name: rows_of(table) for name, table in read.items()}

    assert 0 < len(facts.messages) < len(report.facts.messages)
    for name, expected in {
        "latency": plain.latency(facts),
        "lag_slo": plain.lag_slo(facts, GOALS.lag_objective_ms, GOALS.lag_target),
        "attempts": plain.attempts(facts),
        "redeliveries": plain.redeliveries(facts),
        "dead_letters": plain.dead_letters(facts),
        "lane_waits": plain.lane_waits(facts),
        "delay_accuracy": plain.delay_accuracy(facts),
        "hot_keys": plain.hot_keys(facts, GOALS.top_keys),
        "key_spread": plain.key_spread(facts, report.made.topic, GOALS.top_keys),
        "partition_skew": plain.partition_skew(facts, report.made.topic),
        "summary": [plain.summary(facts)],
    }.items():
        same(tables[name], expected)
    audited = {(row["check"], row["group"]): row["findings"] for row in tables["audit"]}
    assert {check: count for check, count in audited.items() if count} == plain.audit(facts)
    assert {row["group"] for row in tables["rebalance_pauses"]} == {group}
    assert tables["replays"] == [], "they came after the window"
    assert group in (tmp_path / "report.html").read_text()


def window_of(facts: Facts) -> tuple[int, int]:
    """Log times that leave out the first messages and the last."""
    times = sorted({m["ms"] for m in facts.messages if GOALS.replay_id_header not in m["headers"]})
    assert len(times) > 2
    return times[1], times[-1]


def run_report(*arguments: str) -> Result:
    app = typer.Typer()
    register(app)
    return CliRunner().invoke(app, arguments)


def test_an_archive_tells_the_same_messages_and_events(
    spark: SparkSession, servers: str, report: Report, tmp_path: Path
) -> None:
    """In all columns, so a report on it has the same figures; and as much in a window."""
    topic, store = report.made.topic, HadoopStore(spark, str(tmp_path))
    kinds = [Kind.MESSAGES, Kind.EVENTS]
    with Broker(Options({"servers": servers}).access()) as broker:
        _, failures = archive_topics(Run("report", spark, store), broker, [topic], kinds, Pace())
    assert failures == []
    window = window_of(report.facts)

    for wanted in (Wanted(topic), Wanted(topic, report.made.ship, *window)):
        old, now = archived(spark, str(tmp_path), wanted), live(spark, {"servers": servers}, wanted)

        for name in ("messages", "bounds"):
            told, known = (getattr(found.inputs, name) for found in (old, now))
            columns = known.columns
            ours, theirs = (
                sorted(map(repr, one.select(columns).collect())) for one in (told, known)
            )
            assert ours == theirs
        facts = report.facts
        if wanted.group is not None:
            facts = plain.narrowed(facts, wanted.group, *window)
        events = old.inputs.events.select("partition", "index", "offset", "seq", "event_type")
        assert sorted(map(tuple, events.collect())) == [
            (e["partition"], e["index"], e["offset"], e["seq"], e["type"]) for e in facts.events
        ]
    with pytest.raises(NothingToReport, match="there is no topic never-there"):
        archived(spark, str(tmp_path), Wanted("never-there"))
    with pytest.raises(NothingToReport, match="no events of a group nobody"):
        archived(spark, str(tmp_path), Wanted(topic, group="nobody"))


def test_a_damaged_archive_is_told_in_one_sentence(
    spark: SparkSession, client: Client, servers: str, tmp_path: Path
) -> None:
    archive = str(tmp_path / "archive")
    client.create_topic("analytics-damaged", partitions=1)
    client.publish("analytics-damaged", b"one")
    with Broker(Options({"servers": servers}).access()) as broker:
        run = Run("report", spark, HadoopStore(spark, archive))
        archive_topics(run, broker, ["analytics-damaged"], [Kind.MESSAGES], Pace())
    for path in Path(archive).rglob("*.parquet"):
        path.write_bytes(b"damaged")

    words = ("--topic", "analytics-damaged", "--archive", archive)
    ended = run_report(*words, "--output", str(tmp_path / "report"))

    assert ended.exit_code == 1
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("error: ") and ".parquet" in last
    assert "Traceback" not in ended.output


@pytest.fixture(scope="module")
def seen(report: Report) -> Iterator[dict[str, Any]]:
    """What a browser makes of the page."""
    program = find()
    if program is None:
        pytest.skip("there is no chromium here; `make programs` installs it, as root with apt-get")
    yield asyncio.run(looked_at(program, report.folder))


async def looked_at(program: str, folder: Path) -> dict[str, Any]:
    async with Chromium(program) as browser:
        page = await browser.page()
        await page.size(1100)
        await page.goto((folder / "report.html").as_uri())
        cells = await page.evaluate(
            """[...document.querySelectorAll('table')].map(table => [table.dataset.table,
            [...table.querySelectorAll('tbody tr')].map(
                row => [...row.cells].map(cell => cell.dataset.value))])"""
        )
        plots = await page.evaluate(
            """[...document.querySelectorAll('figure svg')].map(svg => {
                const box = svg.getBoundingClientRect();
                return {width: box.width, height: box.height, text: svg.textContent,
                        outside: [...svg.querySelectorAll('text')].filter(text => {
                            const b = text.getBoundingClientRect();
                            return b.left < box.left - 1 || b.right > box.right + 1
                                || b.top < box.top - 1 || b.bottom > box.bottom + 1;
                        }).map(text => text.textContent)};
            })"""
        )
        ids = await page.evaluate("[...document.querySelectorAll('[id]')].map(one => one.id)")
        headlines = await page.evaluate(
            """Object.fromEntries([...document.querySelectorAll('[data-headline]')].map(
                one => [one.dataset.headline, one.dataset.value]))"""
        )
        wide = await page.evaluate("document.documentElement.scrollWidth")
        await page.picture(folder / "light.png", 12_000)
        await page.prefer("dark")
        await page.picture(folder / "dark.png", 12_000)
        return {"cells": cells, "plots": plots, "ids": ids, "headlines": headlines, "wide": wide,
                "complaints": page.complaints, "requests": page.requests}  # fmt: skip


def test_the_page_asks_nothing_of_the_network_and_nothing_is_complained_of(
    report: Report, seen: dict[str, Any]
) -> None:
    assert seen["complaints"] == []
    assert seen["requests"] == [(report.folder / "report.html").as_uri()]
    assert len(seen["ids"]) == len(set(seen["ids"])), "ids of different plots meet"
    assert seen["wide"] <= 1100


def test_figures_in_the_page_are_those_of_the_tables(report: Report, seen: dict[str, Any]) -> None:
    shown: dict[str, list[list[str]]] = {}
    for name, rows in seen["cells"]:
        shown.setdefault(name, []).extend(rows)
    for name in set(TABLES) - {"summary", "lag_series"}:
        rows = report.tables[name].rows.to_pylist()[:ROWS_SHOWN_MAX]
        assert len(shown.get(name, [])) == len(rows), name
        for row, cells in zip(rows, shown.get(name, []), strict=True):
            for value, cell in zip(row.values(), cells, strict=True):
                if isinstance(value, int | float) and not isinstance(value, bool):
                    assert float(cell) == value
                elif isinstance(value, str):
                    assert cell.replace("\r", "") == value.replace("\r", "")
    (summary,) = report.rows("summary")
    assert seen["headlines"]["messages"] == str(summary["messages"])
    assert seen["headlines"]["dead"] == str(summary["dead"])
    assert seen["headlines"]["audit"] == "0"


def test_plots_are_seen_whole_with_their_units(seen: dict[str, Any]) -> None:
    assert len(seen["plots"]) == 9
    for plot in seen["plots"]:
        assert plot["width"] > 600 and plot["height"] > 100
        assert plot["outside"] == []
        assert "$" not in plot["text"].replace("$x_1$", "")
    texts = " ".join(plot["text"] for plot in seen["plots"])
    for unit in ("milliseconds", "time (UTC)", "messages", "deaths", "(ms)"):
        assert unit in texts


@pytest.mark.parametrize(
    ("arguments", "told", "code"),
    [
        (["--topic", "no-such-topic"], "there is no topic no-such-topic", 1),
        (["--topic", "analytics", "--group", "nobody"], "there is no group nobody", 1),
        (["--topic", "analytics", "--from-time", "2099-01-01"], "no messages in this window", 1),
        (
            ["--topic", "analytics", "--lag-target", "1"],
            "lag-target: 1.0 is not between 0 and 1",
            2,
        ),
        (["--topic", "analytics", "--from-time", "soon"], "from-time: 'soon' is not a time", 2),
        (["--topic", "analytics", "--archive", "/nowhere"], "give it or servers, not both", 2),
    ],
)
def test_what_cannot_be_reported_on_is_said_in_one_sentence(
    report: Report, servers: str, arguments: list[str], told: str, code: int
) -> None:
    output = str(report.folder / "none")
    found = run_report(*arguments, "--servers", servers, "--output", output)

    assert found.exit_code == code
    last = found.stderr.splitlines()[-1]
    assert last.startswith("error: ") and told in last
    assert not Path(output).exists()
