"""`goqueue-cli generate` prints and writes what is checked in, and asks no node."""

from __future__ import annotations

import json
from pathlib import Path

import yaml
from typer.testing import CliRunner, Result

from cli.main import app
from tests.unit.monitoring.expressions import ROOT

NOBODY = "http://127.0.0.1:1"


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["--server", NOBODY, "generate", *words])


def test_one_dashboard_is_printed_as_its_file_and_all_as_a_list() -> None:
    file = ROOT / "deploy" / "grafana" / "goqueue-overview.json"

    assert run("grafana", "--dashboard", "overview").stdout == file.read_text()
    assert len(json.loads(run("grafana").stdout)) == 6


def test_files_are_written_into_a_directory_that_is_made(tmp_path: Path) -> None:
    assert run("grafana", "--output", str(tmp_path / "a" / "b")).exit_code == 0
    assert run("prometheus-rules", "--output", str(tmp_path / "c")).exit_code == 0

    assert len(list((tmp_path / "a" / "b").glob("*.json"))) == 6
    for path in (ROOT / "deploy" / "prometheus" / "rules").iterdir():
        assert (tmp_path / "c" / path.name).read_text() == path.read_text()


def test_runbooks_are_linked_where_they_are_said_to_stand() -> None:
    found = run("prometheus-rules", "--format", "operator", "--runbooks", "https://w.example/g/")
    groups = yaml.safe_load(found.stdout)["spec"]["groups"]
    urls = [r["annotations"]["runbook_url"] for g in groups for r in g["rules"] if "alert" in r]

    assert urls and all(url.startswith("https://w.example/g/GoQueue") for url in urls)


def test_an_unknown_dashboard_and_an_unwritable_directory_are_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    unknown = run("grafana", "--dashboard", "nope")
    assert unknown.exit_code == 2 and "overview" in unknown.output
    refused = run("grafana", "--output", str(tmp_path / "file"))
    assert refused.exit_code == 1 and "file" in refused.output
