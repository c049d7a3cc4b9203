"""Executes deploy/terraform: fmt, validate, test; apply, an empty second plan and destroy; checkov.

python -m tests.terraform [--report FILE] [--only fmt,validate,test,dev,prod,checkov]

What needs Terraform or its AWS provider is skipped where they are missing, and said. The exit code
is 1 when a step failed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.terraform.aws import CORRECTED
from tests.terraform.steps import STEPS, Failed, scanned
from tests.terraform.toolchain import NotHere, Terraform, found

CHECKOV = "checkov"
NAMES = (*(step.name for step in STEPS), CHECKOV)
NEVER = """## Not executed anywhere

- Real AWS: quotas, IAM's evaluation of policies, times, nodes that boot and join, load balancers.
- Addons: that they are asked for is shown, not that they run.
- The chart on EKS. What it renders to is checked, and run as processes, by `make test-deploy`.
- `terraform plan` against an upgrade of EKS or of the provider.
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    name: str
    what: str
    verdict: str
    """passed, FAILED or skipped."""
    found: str
    took_s: float


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.terraform")
    parser.add_argument("--report", type=Path)
    parser.add_argument("--only", default=",".join(NAMES), help=", ".join(NAMES))
    given = parser.parse_args()
    only = given.only.split(",")
    if not set(only) <= set(NAMES):
        parser.error(f"steps are {', '.join(NAMES)}")
    with tempfile.TemporaryDirectory(prefix="goqueue-terraform-") as folder:
        outcomes = run(only, Path(folder))
    if given.report is not None:
        given.report.parent.mkdir(parents=True, exist_ok=True)
        given.report.write_text(report(outcomes))
        print(f"written: {given.report}")
    passed, failed, skipped = (
        sum(one.verdict == verdict for one in outcomes)
        for verdict in ("passed", "FAILED", "skipped")
    )
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


def run(only: list[str], folder: Path) -> list[Outcome]:
    missing, terraform = "", None
    try:
        terraform = found(folder)
    except NotHere as reason:
        missing = str(reason)
    outcomes = []
    for step in STEPS:
        if step.name not in only:
            continue
        outcomes.append(
            judged(step.name, step.what, partial(step.do, terraform))
            if isinstance(terraform, Terraform)
            else told(Outcome(step.name, step.what, "skipped", missing, 0.0))
        )
    if CHECKOV in only:
        outcomes.append(judged(CHECKOV, "checkov over all of deploy/terraform", scanned))
    return outcomes


def judged(name: str, what: str, do: Callable[[], str]) -> Outcome:
    began_s = time.monotonic()
    try:
        verdict, answer = "passed", do()
    except (Failed, subprocess.TimeoutExpired) as error:
        verdict, answer = "FAILED", str(error)
    return told(Outcome(name, what, verdict, answer, time.monotonic() - began_s))


def told(outcome: Outcome) -> Outcome:
    print(
        f"{outcome.verdict:8} {outcome.name:9} {outcome.took_s:6.1f} s  {outcome.found}", flush=True
    )
    return outcome


def report(outcomes: list[Outcome]) -> str:
    rows = [
        f"| {one.name} | {one.what} | {one.verdict} | {one.took_s:.0f} s | {cell(one.found)} |"
        for one in outcomes
    ]
    return "\n".join(
        [
            "# Terraform: what was executed",
            "",
            f"By `python -m tests.terraform`, {time.strftime('%Y-%m-%d', time.gmtime())}.",
            "",
            "| step | what | outcome | took | found |",
            "|---|---|---|---:|---|",
            *rows,
            "",
            NEVER,
            "## Where moto's answers were corrected",
            "",
            *(f"- {one}." for one in CORRECTED),
            "",
        ]
    )


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", "<br>")


if __name__ == "__main__":
    sys.exit(main())
