"""`make check`: what counts as changed, and what it says when something fails."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "scripts/check.py"
TOOLS = ("ruff", "lint-imports", "mypy", "basedpyright", "python")

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository whose branch is one commit past main, and tools that only write their name."""
    (tmp_path / "scripts").mkdir()
    for name in ("check.py", "changed_tests.py"):
        shutil.copy(SCRIPT.with_name(name), tmp_path / "scripts" / name)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/interpreter").symlink_to(sys.executable)
    for tool in TOOLS:
        stub(tmp_path, tool, 0)
    (tmp_path / ".gitignore").write_text("bin/\ncalls\n__pycache__/\n")
    write(tmp_path, "raft/old.py", "raft/host.py", "tests/unit/raft/test_host.py")
    git(tmp_path, "init", "-q", "-b", "main")
    commit(tmp_path)
    git(tmp_path, "checkout", "-q", "-b", "branch")
    write(tmp_path, "raft/committed.py")
    commit(tmp_path)
    return tmp_path


def stub(tree: Path, tool: str, code: int) -> None:
    path = tree / "bin" / tool
    path.write_text(
        f'#!/bin/sh\necho {tool} "$@" >> {tree}/calls\necho out of {tool}\nexit {code}\n'
    )
    path.chmod(0o755)


def write(tree: Path, *paths: str) -> None:
    for path in paths:
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_text(f"# {path}\n")


def git(tree: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=tree, check=True, capture_output=True)


def commit(tree: Path) -> None:
    git(tree, "add", "-A")
    git(tree, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "a: b")


def check(tree: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(tree / "bin/interpreter"), str(tree / "scripts/check.py"), *words],
        cwd=tree,
        env={name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
        capture_output=True,
        check=False,
        text=True,
    )


def test_changed_is_what_was_committed_since_main_edited_moved_and_new(tree: Path) -> None:
    (tree / "raft/host.py").write_text("# edited\n")
    git(tree, "mv", "raft/old.py", "raft/moved.py")
    write(tree, "raft/new.py", "raft/ä b.py")

    told = check(tree)

    assert told.returncode == 0, told.stdout + told.stderr
    assert told.stdout.startswith("6 paths changed since ")
    calls = (tree / "calls").read_text()
    typed = re.findall(r"basedpyright (.*)", calls)
    assert typed == ["raft/committed.py raft/host.py raft/moved.py raft/new.py raft/ä b.py"]
    assert re.findall(r"python .* (\S+)\n", calls) == ["tests/unit/raft/test_host.py"]
    assert told.stdout.endswith("check: passed\n")


def test_another_base_may_be_named(tree: Path) -> None:
    assert check(tree, "--base", "HEAD").stdout.startswith("0 paths changed since ")


def test_the_branch_of_the_origin_goes_before_ones_own(tree: Path) -> None:
    git(tree, "update-ref", "refs/remotes/origin/main", "HEAD")

    assert check(tree).stdout.startswith("0 paths changed since ")


def test_without_main_only_what_is_not_committed_counts(tree: Path) -> None:
    git(tree, "branch", "-q", "-D", "main")
    write(tree, "raft/new.py")

    assert check(tree).stdout.startswith("1 paths changed since HEAD")


def test_a_base_that_is_no_revision_is_told(tree: Path) -> None:
    told = check(tree, "--base", "nowhere")

    assert told.returncode == 2
    assert "can't tell what changed" in told.stderr and "nowhere" in told.stderr
    assert not (tree / "calls").exists()


@pytest.mark.parametrize(
    ("tool", "kind"),
    [
        ("ruff", "lint"),
        ("lint-imports", "lint"),
        ("mypy", "types"),
        ("basedpyright", "types"),
        ("python", "tests"),
    ],
)
def test_each_kind_runs_whichever_fails_and_the_one_that_failed_is_named(
    tree: Path, tool: str, kind: str
) -> None:
    stub(tree, tool, 3)

    told = check(tree)

    assert told.returncode == 1
    assert told.stdout.endswith(f"check: {kind} failed\n")
    assert f"out of {tool}\n" in told.stdout and f"\n{kind}: FAILED in " in told.stdout
    assert {line.split()[0] for line in (tree / "calls").read_text().splitlines()} == set(TOOLS)


def test_all_that_failed_is_named(tree: Path) -> None:
    for tool in ("mypy", "python"):
        stub(tree, tool, 1)

    assert check(tree).stdout.endswith("check: tests and types failed\n")


def test_a_tool_that_is_not_installed_fails_its_kind_and_says_what_installs_it(tree: Path) -> None:
    (tree / "bin/mypy").unlink()

    told = check(tree)

    assert told.returncode == 1
    assert "no mypy in " in told.stdout and "make setup-dev" in told.stdout
    assert told.stdout.endswith("check: types failed\n")


def test_the_tree_is_judged_that_the_script_is_in(tree: Path) -> None:
    (tree / "bin/lint-imports").write_text('#!/bin/sh\necho "path $PYTHONPATH"\nexit 1\n')

    assert f"path {tree}{os.pathsep}{tree}/client" in check(tree).stdout


def test_basedpyright_is_given_no_file_that_it_is_not_configured_for() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    named = SCRIPT.read_text().partition("\nPYRIGHT = (")[2].partition(")")[0]

    assert re.findall(r'"([^"]+)"', named) == config["tool"]["pyright"]["include"]
