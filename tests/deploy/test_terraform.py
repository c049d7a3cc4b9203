"""What of deploy/terraform is quickly told; `make test-terraform` executes all of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.deploy.report import REPORT
from tests.terraform import steps
from tests.terraform.steps import ENVIRONMENTS, MODULE
from tests.terraform.toolchain import SOURCES, NotHere, Terraform, found

FOLDERS = (MODULE, *ENVIRONMENTS)


@pytest.fixture(scope="module")
def terraform(tmp_path_factory: pytest.TempPathFactory) -> Terraform:
    try:
        return found(tmp_path_factory.mktemp("terraform"))
    except NotHere as reason:
        REPORT.not_executed(f"deploy/terraform: {reason}.")
        pytest.skip(f"not executed: {reason}")


def text(folder: str) -> str:
    return "\n".join(path.read_text() for path in sorted((SOURCES / folder).glob("*.tf")))


def declared(kind: str, folder: str) -> set[str]:
    return set(re.findall(rf'^{kind} "([\w-]+)"', text(folder), re.M))


def test_the_sources_are_formatted(terraform: Terraform) -> None:
    assert "files as" in steps.formatted(terraform)
    REPORT.executed("deploy/terraform; the rest by `make test-terraform`", "terraform fmt")


def test_the_module_does_what_its_own_tests_claim(terraform: Terraform) -> None:
    assert steps.tested(terraform).startswith("Success!")
    REPORT.executed("deploy/terraform; the rest by `make test-terraform`", "terraform test")


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_variable_is_used_and_every_used_one_declared(folder: str) -> None:
    assert set(re.findall(r"\bvar\.(\w+)", text(folder))) == declared("variable", folder)


@pytest.mark.parametrize("folder", ENVIRONMENTS)
def test_environments_give_the_module_variables_that_it_has_and_take_outputs_that_it_has(
    folder: str,
) -> None:
    given = re.search(r'^module "eks" \{\n(.*?)\n\}', text(folder), re.M | re.S)

    assert given is not None
    names = set(re.findall(r"^  (\w+)\s*=", given[1], re.M)) - {"source"}
    assert names <= declared("variable", MODULE)
    assert set(re.findall(r"module\.eks\.(\w+)", text(folder))) <= declared("output", MODULE)


def test_environments_have_the_same_outputs() -> None:
    dev, prod = (declared("output", folder) for folder in ENVIRONMENTS)

    assert dev == prod


@pytest.mark.parametrize("folder", FOLDERS)
def test_only_the_aws_provider_is_used_and_no_module_of_a_registry(folder: str) -> None:
    sources = set(re.findall(r'\bsource\s*=\s*"([^"]+)"', text(folder)))

    assert sources <= {"hashicorp/aws", "../../modules/eks"}
    assert set(re.findall(r'^(?:resource|data) "([a-z0-9]+)_', text(folder), re.M)) <= {"aws"}


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_variable_and_output_says_what_it_is(folder: str) -> None:
    blocks = re.findall(r'^(?:variable|output) "(\w+)" \{\n  (\w+)', text(folder), re.M)

    assert [name for name, first in blocks if first != "description"] == []


def test_every_exception_for_checkov_has_a_reason() -> None:
    marks = [
        line.strip()
        for path in Path(SOURCES).rglob("*.tf")
        for line in path.read_text().splitlines()
        if "checkov:skip" in line
    ]

    assert marks
    assert [one for one in marks if not re.search(r"checkov:skip=CKV2?_\w+: .{40,}", one)] == []
