"""The config file with named clusters."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from cli.output.errors import CliError
from cli.run.context import SERVER_DEFAULT, Context, ContextFile, default_path, resolve

TWO = """\
current-context: staging
contexts:
  local:
    server: http://localhost:8080
  staging:
    server: https://staging:8080
    api-key: gq_1
    timeout: 5
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("GOQUEUE_CONFIG", "GOQUEUE_API_KEY", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_without_a_file_there_is_one_local_context(home: Path) -> None:
    file = ContextFile.load()

    assert (file.current, file.contexts) == ("local", {"local": Context(SERVER_DEFAULT)})
    assert not file.path.exists()


def test_the_file_of_goqueue_is_read_when_there_is_no_newer_one(home: Path) -> None:
    old, new = home / ".goqueue/config.yaml", home / ".config/goqueue/config.yaml"

    write(old, TWO)
    assert default_path() == old

    write(new, TWO)
    assert default_path() == new


def test_the_environment_names_the_file(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(home / "x.yaml", TWO)
    monkeypatch.setenv("GOQUEUE_CONFIG", str(home / "x.yaml"))

    assert resolve(None, None, None) == Context("https://staging:8080", "gq_1", 5.0)


def test_flags_win_over_the_file(home: Path) -> None:
    write(default_path(), TWO)

    assert resolve(None, "local", None).server == "http://localhost:8080"
    assert resolve("http://other", None, 7.0) == Context("http://other", "", 7.0, is_named=True)
    staging = Context("http://other", "gq_1", 5.0, is_named=True)
    assert resolve("http://other", "staging", None) == staging


def test_an_unknown_context_is_not_found(home: Path) -> None:
    with pytest.raises(CliError, match='no context "nowhere"') as caught:
        resolve(None, "nowhere", None)

    assert caught.value.exit_code == 3


def test_a_saved_file_is_read_back_and_only_its_owner_may_read_it(home: Path) -> None:
    write(default_path(), TWO)
    file = ContextFile.load()
    file.contexts["third"] = Context("http://third")
    file.save()

    again = ContextFile.load()
    assert again.contexts == file.contexts
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("- a", "line 1: names with their values are expected, not a list"),
        ("contexts: [a]", "line 1: contexts: names with"),
        ("contexts: {a: b}", "line 1: contexts: a: names with"),
        ("contexts: {a: {server: x, colour: red}}", "contexts: a: colour: unknown"),
        ("contexts: {a: {timeout: soon}}", "seconds"),
        ("a: [", "config.yaml, line 1: expected the node content"),
        ("contexts:\n  a: {server: x\nb: c\n", "config.yaml, line 3: expected ',' or '}'"),
        ("contexts:\n\ta: b\n", "config.yaml, line 2: found character '\\\\t'"),
        ("a: \x07", "config.yaml: unacceptable character"),
    ],
)
def test_a_broken_file_is_named(home: Path, text: str, problem: str) -> None:
    write(default_path(), text)

    with pytest.raises(CliError, match=problem) as caught:
        ContextFile.load()

    assert caught.value.exit_code == 2
    assert "\n" not in caught.value.message
