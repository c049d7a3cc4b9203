"""Terraform and the AWS provider: found on this machine, or told why they are not.

A provider is taken from a folder of the shape HOST/NAMESPACE/TYPE/VERSION/PLATFORM, or from
Terraform's registry where that answers.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "deploy" / "terraform"
PROVIDER = "registry.terraform.io/hashicorp/aws"
COMMAND_S = 600
REGISTRY_S = 60
MIRRORS = (
    "~/.terraform.d/plugins",
    "~/.local/share/terraform/plugins",
    "/usr/local/share/terraform/plugins",
    "/usr/share/terraform/plugins",
    "/opt/*",
)
RC_OF_A_MIRROR = """disable_checkpoint = true
provider_installation {{
  filesystem_mirror {{
    path = "{mirror}"
  }}
}}
"""
SECRETS_OF_NOBODY = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}


class NotHere(Exception):
    """What is missing, and how to get it."""


@dataclass(frozen=True, slots=True)
class Ran:
    command: str
    code: int
    output: str


@dataclass(frozen=True, slots=True)
class Terraform:
    """The program, with a copy of the sources in `tree` to work in."""

    program: str
    mirror: Path | None
    """None: providers come from the registry."""
    folder: Path

    @property
    def tree(self) -> Path:
        return self.folder / "terraform"

    def run(self, where: str, *arguments: str, env: dict[str, str] | None = None) -> Ran:
        """`where` is a folder below deploy/terraform. Output is both streams."""
        done = subprocess.run(
            [self.program, *arguments],
            cwd=self.tree / where,
            env={**self._environment(), **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_S,
        )
        return Ran(f"terraform {' '.join(arguments)}", done.returncode, done.stdout)

    def _environment(self) -> dict[str, str]:
        """Nothing of a real account, and no proxy or certificate of the user's."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("AWS_", "TF_")) and not name.lower().endswith("_proxy")
        }
        kept |= {"TF_IN_AUTOMATION": "1", "TF_INPUT": "0", "CHECKPOINT_DISABLE": "1"}
        if self.mirror is not None:
            kept["TF_CLI_CONFIG_FILE"] = str(self.folder / "rc")
        return {**kept, **SECRETS_OF_NOBODY}


def found(folder: Path) -> Terraform:
    """Terraform that could initialise the module in a copy of the sources in `folder`.

    Raises NotHere.
    """
    program = shutil.which("terraform")
    if program is None:
        raise NotHere(
            "terraform is not on PATH (https://developer.hashicorp.com/terraform/install)"
        )
    mirror = local_mirror()
    if mirror is not None:
        (folder / "rc").write_text(RC_OF_A_MIRROR.format(mirror=mirror))
    elif not registry_answers(program):
        raise NotHere(
            f"the provider {PROVIDER} is in none of {', '.join(MIRRORS)}, nor in the folder that"
            " GOQUEUE_TERRAFORM_MIRROR names, and Terraform's registry does not answer"
        )
    terraform = Terraform(program, mirror, folder)
    shutil.copytree(
        SOURCES, terraform.tree, ignore=shutil.ignore_patterns(".terraform*", "*.tfstate*")
    )
    return terraform


def local_mirror() -> Path | None:
    named = os.environ.get("GOQUEUE_TERRAFORM_MIRROR", "")
    for pattern in (named, *MIRRORS):
        if not pattern:
            continue
        path = Path(pattern).expanduser()
        for folder in sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor)))):
            if any(folder.glob(f"{PROVIDER}/*/*/terraform-provider-aws*")):
                return folder
    return None


def registry_answers(program: str) -> bool:
    """Asked by an `init` of an empty configuration, which downloads the provider into a cache."""
    with tempfile.TemporaryDirectory() as folder:
        versions = SOURCES / "modules" / "eks" / "versions.tf"
        shutil.copy(versions, folder)
        try:
            done = subprocess.run(
                [program, "init", "-input=false", "-no-color"],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=REGISTRY_S,
            )
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0
