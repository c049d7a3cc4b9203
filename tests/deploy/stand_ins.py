"""Programs on PATH that only record how they were called, for tests of deploy/deploy.sh."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ("kind", "kubectl", "helm", "terraform", "docker", "aws")
BORROWED = ("bash", "sh", "sed", "date", "dirname", "mkdir", "realpath", "cat")
COPIED = ("deploy/deploy.sh", "deploy/kind", "deploy/benchmark", "deploy/helm/goqueue/Chart.yaml")
RUN_S = 30
STAND_IN = r"""#!/bin/sh
name=${0##*/}
if [ "$name" != git ]; then
  call=$name between=$(printf '\037')
  for word; do call=$call$between$word; done
  printf '%s\036' "$call" >> "$RECORD"
fi
while IFS='	' read -r pattern code text; do
  case "$name $* ." in
    *"$pattern"*) printf '%s\n' "$text"; exit "$code" ;;
  esac
done < "$ANSWERS"
if [ "$name" = docker ] && [ "$1" = login ]; then cat > /dev/null; fi
"""
OUTPUTS = {
    "output -raw cluster_name": "goqueue-dev",
    "output -raw region": "eu-central-1",
    "output -raw namespace": "queues",
    "output -raw image_registry": "1.example.com",
    "output -raw image_repository": "1.example.com/dev/goqueue",
    "output -raw image_name": "dev/goqueue",
    "output -raw helm_values": "image: {repository: r}",
    "git rev-parse": "abc123",
    "git status": "",
    "config current-context": "theirs",
    "jsonpath={.spec.ports[0].name}": "https",
    "jsonpath={.spec.template.spec.containers[0].image}": "goqueue:9.9",
}
NEW = {"kind get kubeconfig": 1, "aws ecr describe-images": 1}
"""What fails where nothing is there yet."""


@dataclass(frozen=True, slots=True)
class Ran:
    code: int
    stdout: str
    stderr: str
    calls: list[list[str]]
    """Every program that was called, with its arguments."""


@dataclass(slots=True)
class Machine:
    """A copy of deploy/ in `folder`; on PATH nothing but stand-ins and a few programs of Debian."""

    folder: Path
    exits: dict[str, int] = field(default_factory=lambda: dict(NEW))
    """Exit codes of calls that contain a text."""
    missing: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in COPIED:
            target = self.folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, target)
        (self.folder / "bin").mkdir()

    def deploy(self, *arguments: str, env: dict[str, str] | None = None) -> Ran:
        return self.run([str(self.folder / "deploy/deploy.sh"), *arguments], env)

    def run(self, command: list[str], env: dict[str, str] | None = None) -> Ran:
        self._put_programs()
        answers, record = self.folder / "answers", self.folder / "record"
        lines = [f"{text}\t{code}\t" for text, code in self.exits.items()]
        lines += [f"{text}\t0\t{answer}" for text, answer in OUTPUTS.items()]
        answers.write_text("\n".join(lines) + "\n")
        record.write_bytes(b"")
        done = subprocess.run(
            command,
            cwd=self.folder,
            env={
                "PATH": str(self.folder / "bin"),
                "HOME": str(self.folder),
                "ANSWERS": str(answers),
                "RECORD": str(record),
                **(env or {}),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=RUN_S,
        )
        calls = [one.split("\037") for one in record.read_text().split("\036") if one]
        return Ran(done.returncode, done.stdout, done.stderr, calls)

    def _put_programs(self) -> None:
        folder = self.folder / "bin"
        for name in (*PROGRAMS, "git"):
            (folder / name).unlink(missing_ok=True)
            if name not in self.missing:
                (folder / name).write_text(STAND_IN)
                (folder / name).chmod(0o755)
        for name in BORROWED:
            if not (folder / name).exists():
                os.symlink(shutil.which(name) or f"/bin/{name}", folder / name)
