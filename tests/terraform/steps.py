"""What is done with deploy/terraform, one after the other."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.terraform.toolchain import ROOT, SOURCES, Ran, Terraform

MODULE = "modules/eks"
ENVIRONMENTS = DEV, PROD = "environments/dev", "environments/prod"
ROUND = "`terraform apply`, `plan -detailed-exitcode`, `destroy` on moto's server"
CHECKOV_S = 300
STATE_BUCKET = "goqueue-state"


class Failed(Exception):
    """A step's command, and what it printed."""


@dataclass(frozen=True, slots=True)
class Step:
    name: str
    what: str
    """What was executed, for the report."""
    do: Callable[[Terraform], str]
    """Answers what it found; raises Failed."""


def expect(ran: Ran, code: int = 0) -> str:
    if ran.code != code:
        raise Failed(f"{ran.command}: exit code {ran.code}\n{ran.output}")
    return ran.output


def formatted(terraform: Terraform) -> str:
    expect(terraform.run(".", "fmt", "-check", "-recursive", "-diff", "-no-color"))
    return f"{len(list(SOURCES.rglob('*.tf')))} files as `terraform fmt` writes them"


def tested(terraform: Terraform) -> str:
    expect(terraform.run(MODULE, "init", "-backend=false", "-no-color"))
    output = expect(terraform.run(MODULE, "test", "-no-color"))
    return output.strip().splitlines()[-1]


def valid(terraform: Terraform) -> str:
    for where in (MODULE, *ENVIRONMENTS):
        expect(terraform.run(where, "init", "-backend=false", "-no-color"))
        expect(terraform.run(where, "validate", "-no-color"))
    return f"{', '.join((MODULE, *ENVIRONMENTS))} are valid"


def applied(terraform: Terraform, where: str) -> str:
    """Made, planned again without a change, and taken away."""
    from tests.terraform import aws  # moto is there in this step's environment only

    with aws.served() as env:
        return _round(terraform, where, env)


def _round(terraform: Terraform, where: str, env: dict[str, str]) -> str:
    backend = _backend(env) if where == PROD else []
    expect(terraform.run(where, "init", "-reconfigure", "-no-color", *backend, env=env))
    made = expect(terraform.run(where, "apply", "-auto-approve", "-no-color", env=env))
    expect(terraform.run(where, "plan", "-detailed-exitcode", "-no-color", env=env))
    outputs = json.loads(expect(terraform.run(where, "output", "-json", env=env)))
    if empty := [name for name, output in outputs.items() if not output["value"]]:
        raise Failed(f"{where}: outputs without a value: {', '.join(empty)}")
    _taken_by_the_chart(outputs["helm_values"]["value"])
    gone = expect(terraform.run(where, "destroy", "-auto-approve", "-no-color", env=env))
    return f"{_counted(made)}, second plan empty, the chart takes helm_values, {_counted(gone)}"


def _taken_by_the_chart(values: str) -> None:
    """The chart's schema refuses names that it does not know."""
    import jsonschema  # moto brings it along
    import yaml

    schema = json.loads((ROOT / "deploy/helm/goqueue/values.schema.json").read_text())
    try:
        jsonschema.validate(yaml.safe_load(values), schema)
    except jsonschema.ValidationError as error:
        raise Failed(f"output helm_values: {error.json_path}: {error.message}") from error


def _counted(output: str) -> str:
    """`Apply complete! Resources: 3 added, ...` or `Destroy complete! ...`."""
    lines = [line for line in output.splitlines() if " complete! Resources:" in line]
    if not lines:
        raise Failed(f"no count of resources in\n{output}")
    return (
        lines[-1]
        .partition("Resources: ")[2]
        .rstrip(".")
        .split(", ")[0 if "added" in lines[-1] else -1]
    )


def _backend(env: dict[str, str]) -> list[str]:
    """Prod's state is in a bucket, which is made here as its owner would."""
    import boto3

    s3 = boto3.client(
        "s3",
        endpoint_url=env["AWS_ENDPOINT_URL"],
        region_name=env["AWS_REGION"],
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    where = {"LocationConstraint": env["AWS_REGION"]}
    s3.create_bucket(Bucket=STATE_BUCKET, CreateBucketConfiguration=where)
    return [
        f"-backend-config=bucket={STATE_BUCKET}",
        f"-backend-config=region={env['AWS_REGION']}",
        "-backend-config=use_path_style=true",
    ]


def scanned() -> str:
    """Needs no Terraform. Exceptions are in the sources, each with its reason."""
    done = subprocess.run(
        [
            str(Path(sys.executable).with_name("checkov")),
            *("--directory", str(SOURCES), "--framework", "terraform"),
            *("--output", "json", "--compact", "--quiet", "--skip-download"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=CHECKOV_S,
    )
    try:
        answer = json.loads(done.stdout)
        summary, failed = answer["summary"], answer["results"]["failed_checks"]
    except (ValueError, KeyError, TypeError) as error:
        raise Failed(f"checkov: no answer\n{done.stdout}\n{done.stderr}") from error
    if failed or done.returncode:
        listed = [f"{one['check_id']} {one['resource']}: {one['check_name']}" for one in failed]
        raise Failed("checkov:\n" + "\n".join(listed))
    if summary["parsing_errors"] or not summary["passed"]:
        raise Failed(f"checkov read nothing, or not all: {summary}")
    excepted = f"{summary['skipped']} excepted in the sources with a reason"
    return f"{summary['passed']} checks passed, {excepted}"


STEPS = (
    Step("fmt", "`terraform fmt -check -recursive`", formatted),
    Step("validate", "`terraform validate` of the module and both environments", valid),
    Step("test", "`terraform test` of the module with `mock_provider`", tested),
    Step("dev", f"{ROUND}, environment dev", lambda terraform: applied(terraform, DEV)),
    Step(
        "prod",
        f"{ROUND}, environment prod, with its state in a bucket there",
        lambda terraform: applied(terraform, PROD),
    ),
)
