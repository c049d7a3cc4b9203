"""What a dashboard is made of: rows of panels, each with queries and a word on what is normal.

Expressions are PromQL with these words for what every query repeats:

- `@all` the cluster and the namespace that are chosen, as label matchers
- `@topic`, `@group`, `@node` what is chosen of each; `@lagging` the group where its label is
  `group`, as Kafka's exporters have it
- `@rate` the window of rates and increases
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

WORDS = {
    "@all": 'cluster=~"$cluster",namespace=~"$namespace"',
    "@topic": 'topic=~"$topic"',
    "@group": 'consumer_group=~"$group"',
    "@node": 'instance=~"$node"',
    "@lagging": 'group=~"$group"',
    "@rate": "$__rate_interval",
}
COLUMNS = 24
NORMAL = "Normal: "
"""Every description has it."""


class Kind(StrEnum):
    """How a panel draws its numbers, by Grafana's name."""

    graph = "timeseries"
    figure = "stat"
    gauge = "gauge"
    table = "table"


class Unit(StrEnum):
    """Grafana's ids of units."""

    number = "short"
    per_second = "cps"
    messages_per_second = "mps"
    requests_per_second = "reqps"
    operations_per_second = "ops"
    seconds = "s"
    bytes = "bytes"
    bytes_per_second = "Bps"
    ratio = "percentunit"
    percent = "percent"
    is_true = "bool_yes_no"


@dataclass(frozen=True, slots=True)
class Query:
    """One expression of a panel, and its legend by labels: `{{topic}}`."""

    expression: str
    legend: str
    still: str = ""
    """Why zeros are right under load; nothing: as the panel says."""

    @property
    def promql(self) -> str:
        """With Grafana's variables in the place of our words."""
        text = self.expression
        for word, meaning in WORDS.items():
            text = text.replace(word, meaning)
        return text


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture. `text` says what is shown and, after `Normal: `, what healthy looks like."""

    title: str
    text: str
    queries: tuple[Query, ...]
    unit: Unit
    kind: Kind = Kind.graph
    width: int = 12
    height: int = 8
    warn: float | None = None
    """From here on it is drawn in yellow."""
    bad: float | None = None
    """From here on it is drawn in red."""
    falls: bool = False
    """Low is bad: `warn` and `bad` are reached from above."""
    stacked: bool = False
    least: float | None = 0
    most: float | None = None
    alerts: tuple[str, ...] = ()
    """The alerts on these figures; their runbooks are linked."""
    still: str = ""
    """Why zeros are right under load; nothing: load of every kind must move each query."""

    def still_reason(self, query: Query) -> str:
        return query.still or self.still


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under one heading, laid out from left to right and then downwards."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    """What a viewer chooses: values of a label, of those that a metric has."""

    name: str
    label: str
    metric: str
    title: str
    within: str = "@all"
    """Label matchers by what was chosen before."""


CLUSTER = Variable("cluster", "cluster", "goqueue_up", "Cluster", within="")
NAMESPACE = Variable("namespace", "namespace", "goqueue_up", "Namespace", 'cluster=~"$cluster"')
NODE = Variable("node", "instance", "goqueue_up", "Node")
TOPIC = Variable("topic", "topic", "goqueue_broker_messages_published_total", "Topic")
GROUP = Variable("group", "consumer_group", "goqueue_consumer_committed_offset", "Group")


@dataclass(frozen=True, slots=True)
class Dashboard:
    """A page. `uid` never changes: links and bookmarks name it."""

    name: str
    """What the command line calls it."""
    uid: str
    title: str
    text: str
    rows: tuple[Row, ...]
    variables: tuple[Variable, ...] = ()
    """Besides the data source, the cluster and the namespace."""

    @property
    def chosen(self) -> tuple[Variable, ...]:
        return (CLUSTER, NAMESPACE, *self.variables)

    @property
    def panels(self) -> tuple[Panel, ...]:
        return tuple(panel for row in self.rows for panel in row.panels)


def quantiles(
    metric: str, where: str, *by: str, of: tuple[float, ...] = (0.5, 0.95, 0.99)
) -> tuple[Query, ...]:
    """One query for each quantile of a histogram; `metric` without its `_bucket`."""
    labels = ", ".join(("le", *by))
    shown = " ".join(f"{{{{{label}}}}}" for label in by)
    return tuple(
        Query(
            f"histogram_quantile({q}, sum by ({labels}) (rate({metric}_bucket{{{where}}}[@rate])))",
            f"p{100 * q:g} {shown}".strip(),
        )
        for q in of
    )
