"""A real Prometheus on loopback for tests: Debian's, set up as the example in deploy/ is."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.processes import HOST, ROOT, eventually, tail
from tests.ports import free_ports

PROGRAM = shutil.which("prometheus")
EXAMPLE = ROOT / "deploy" / "prometheus" / "prometheus.yaml"
RULES = ROOT / "deploy" / "prometheus" / "rules"
CLUSTER_LABEL = "example"
Series = list[dict[str, Any]]


class QueryFailed(Exception):
    """What Prometheus says of an expression."""


class Prometheus:
    """Scrapes every second and looks at the rules as often. A context: leaves no process behind."""

    def __init__(self, folder: Path, targets: Sequence[str]) -> None:
        assert PROGRAM is not None
        folder.mkdir(parents=True, exist_ok=True)
        self._url = f"http://{HOST}:{free_ports(1)[0]}"
        self._log = folder / "prometheus.log"
        config = folder / "prometheus.yaml"
        config.write_text(yaml.safe_dump(configured(targets)))
        self._command = [
            PROGRAM,
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'data'}",
            "--storage.tsdb.retention.time=1h",
            f"--web.listen-address={self._url.removeprefix('http://')}",
            "--log.level=warn",
        ]
        self._process: subprocess.Popen[bytes] | None = None
        self.started_s = 0.0

    def __enter__(self) -> Prometheus:
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                self._command,
                env={**os.environ, "GOMAXPROCS": "1"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            eventually(
                lambda: f"Prometheus is ready; its log ends:\n{tail(self._log)}", self._is_ready
            )
        except BaseException:
            self.__exit__()
            raise
        self.started_s = time.time()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(10)

    def since_start(self, expression: str, *, step_s: int = 1) -> Series:
        """The answer at every step from the beginning until now. Raises `QueryFailed`."""
        found: Series = self._ask(
            "query_range",
            query=expression,
            start=f"{self.started_s:.3f}",
            end=f"{time.time():.3f}",
            step=f"{step_s}s",
        )["result"]
        return found

    def now(self, expression: str) -> Series:
        """Raises `QueryFailed`."""
        found: Series = self._ask("query", query=expression)["result"]
        return found

    def label_values(self, label: str, series: str) -> list[str]:
        found: list[str] = self._ask(f"label/{label}/values?match[]={urllib.parse.quote(series)}")
        return found

    def rules(self) -> list[dict[str, Any]]:
        """Every rule that is loaded, with its `health` and `lastError`."""
        groups = self._ask("rules")["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def are_scraped(self) -> set[str]:
        """The targets that answered the last scrape."""
        targets = self._ask("targets")["activeTargets"]
        return {one["labels"]["instance"] for one in targets if one["health"] == "up"}

    def _is_ready(self) -> bool:
        code = self._process.poll() if self._process else None
        assert code is None, f"it exited with {code}; its log ends:\n{tail(self._log)}"
        try:
            with urllib.request.urlopen(f"{self._url}/-/ready", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _ask(self, what: str, **form: str) -> Any:
        data = urllib.parse.urlencode(form).encode() if form else None
        try:
            with urllib.request.urlopen(f"{self._url}/api/v1/{what}", data, timeout=20) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise QueryFailed(_said(error.read())) from None


def _said(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):  # a page, where it is not up to answering
        return body[:500].decode(errors="replace")


def configured(targets: Sequence[str]) -> dict[str, Any]:
    """The example configuration with other targets, and in a hurry."""
    config: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text())
    config["global"] |= {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["global"] |= {"scrape_timeout": "1s"}
    config["rule_files"] = [str(path) for path in sorted(RULES.glob("*.yaml"))]
    config.pop("alerting", None)
    [job] = [one for one in config["scrape_configs"] if "static_configs" in one]
    labels = {"cluster": CLUSTER_LABEL}
    job["static_configs"] = [{"targets": list(targets), "labels": labels}]
    config["scrape_configs"] = [job]
    return config
