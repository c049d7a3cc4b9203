"""What a run of these tests has executed, and what it has not, as a page."""

from __future__ import annotations

import os
from pathlib import Path

PATH = os.environ.get("GOQUEUE_DEPLOY_REPORT")
"""Where the page is written; unset: nowhere."""
NEVER = (
    "No Kubernetes: no API server, scheduler, kubelet, CNI or CSI. Helm's requests were answered by"
    " an imitation that keeps objects and judges none but by the schemas.",
    "Custom resources (cert-manager, Gateway API, KEDA, Prometheus operator) have no schema here;"
    " their essential fields were compared with what the operators' documentation says.",
    "No container image was built or run by these tests, no NetworkPolicy enforced, no volume"
    " provisioned, no load balancer, ingress controller or gateway asked.",
    "`goqueue-pipeline archive`, the CronJob's command, was not run.",
)


class Report:
    """Lines under headings, in the order they come; a line is told once."""

    def __init__(self) -> None:
        self._done: dict[str, dict[str, None]] = {}
        self._not: dict[str, None] = dict.fromkeys(NEVER)

    def executed(self, heading: str, line: str) -> None:
        self._done.setdefault(heading, {})[line] = None

    def not_executed(self, line: str) -> None:
        self._not[line] = None

    def write(self) -> None:
        """Nothing where nothing was executed."""
        if not self._done or not PATH:
            return
        parts = ["# What `make test-deploy` has executed\n"]
        for heading, lines in self._done.items():
            parts.append(f"\n## {heading}\n\n" + "".join(f"- {line}\n" for line in lines))
        parts.append("\n## Not executed\n\n" + "".join(f"- {line}\n" for line in self._not))
        Path(PATH).parent.mkdir(parents=True, exist_ok=True)
        Path(PATH).write_text("".join(parts))


REPORT = Report()
