"""`make` on a machine whose first try failed, or whose disk is full."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "scripts/bootstrap.py"


@pytest.fixture
def bootstrap() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bootstrap", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_an_environment_that_a_failed_run_left_without_pip_is_made_again(tmp_path: Path) -> None:
    venv, lock = tmp_path / "venv", tmp_path / "empty.lock"
    lock.write_text("\n")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    made = subprocess.run([sys.executable, str(SCRIPT), str(venv), str(lock)], check=False)
    assert made.returncode == 0
    subprocess.run([str(venv / "bin/python"), "-c", "import pip"], check=True)


@pytest.mark.parametrize(("free", "told"), [(46_000_000, True), (50_000_000_000, False)])
def test_a_full_disk_is_named_when_the_environment_can_not_be_made(
    bootstrap: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    free: int,
    told: bool,
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=free))
    # a file where the environment should be: venv fails as it does without room
    (tmp_path / "venv").write_text("")
    assert bootstrap.main(tmp_path / "venv", tmp_path / "lock", with_this=False) == 1
    said = capsys.readouterr().err
    assert ("Only 46 MB are free on this disk" in said) is told
