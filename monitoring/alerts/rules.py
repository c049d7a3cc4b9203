"""Rules as Prometheus loads them from files, and as the Prometheus operator takes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import yaml

from monitoring.alerts.model import Alert, Group, Record

Json = dict[str, Any]
NOTE = (
    "# Made by `goqueue-cli generate prometheus-rules`; change monitoring/alerts/ and"
    " make it again.\n"
)
RESOURCE = "goqueue"


def rules(groups: Iterable[Group], runbooks: str) -> str:
    """A rules file; `runbooks` is the address that they stand under."""
    return NOTE + _yaml(_body(groups, runbooks))


def resource(groups: Iterable[Group], runbooks: str) -> str:
    """A PrometheusRule, for clusters with the operator."""
    return NOTE + _yaml(
        {
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "PrometheusRule",
            "metadata": {"name": RESOURCE, "labels": {"app.kubernetes.io/name": RESOURCE}},
            "spec": _body(groups, runbooks),
        }
    )


def _body(groups: Iterable[Group], runbooks: str) -> Json:
    return {"groups": [_group(group, runbooks) for group in groups]}


def _group(group: Group, runbooks: str) -> Json:
    every = {"interval": group.every} if group.every else {}
    return {"name": group.name, **every, "rules": [_rule(rule, runbooks) for rule in group.rules]}


def _rule(rule: Alert | Record, runbooks: str) -> Json:
    if isinstance(rule, Record):
        return {"record": rule.name, "expr": rule.promql}
    return {
        "alert": rule.name,
        "expr": rule.promql,
        "for": rule.lasts,
        "labels": {"severity": rule.severity.value},
        "annotations": {
            "summary": rule.summary,
            "description": rule.description,
            "runbook_url": f"{runbooks}/{rule.name}.md",
        },
    }


class _Dumper(yaml.SafeDumper):
    """Expressions of several lines stay so."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style="|" if "\n" in text else None
    )


_Dumper.add_representer(str, _text)


def _yaml(value: object) -> str:
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
