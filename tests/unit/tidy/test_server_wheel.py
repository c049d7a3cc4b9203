"""The build backend: which names it renames in a wheel, and which it refuses."""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "scripts/server_wheel.py"
MODULES = {"node", "node.server", "cli", "cli.serve", "log", "log.store"}
INFO = "made-1.dist-info"


@pytest.fixture(scope="module")
def backend() -> ModuleType:
    spec = importlib.util.spec_from_file_location("server_wheel", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def renamed(backend: ModuleType, source: str) -> tuple[str, list[str]]:
    content, problems = backend.rename_imports(source.encode(), "node/x.py", MODULES)
    return content.decode(), problems


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("from node import rpc\n", "from goqueue_server.node import rpc\n"),
        (
            "from node.server import (\n    A,\n)\n",
            "from goqueue_server.node.server import (\n    A,\n)\n",
        ),
        (
            "def f():\n    from log.store import S\n",
            "def f():\n    from goqueue_server.log.store import S\n",
        ),
        (
            "from log import a; from cli import b",
            "from goqueue_server.log import a; from goqueue_server.cli import b",
        ),
        ("'é'; from log import a", "'é'; from goqueue_server.log import a"),
        ("from goqueue.wire import node", "from goqueue.wire import node"),
        ("from logging import log", "from logging import log"),
        ("from .node import rpc", ".node".join(("from ", " import rpc"))),
        ("import logging, goqueue.node", "import logging, goqueue.node"),
        ("'''Of node.server: from node import x.'''\nx = 1  # node.server", None),
        ("KEY, PATH, URL = 'node.timeout', 'a/node.server', 'goqueue.cli.serve'", None),
        ("log = getLogger('log'); log.store = ('node', 'cli')", None),
    ],
)
def test_imports_are_renamed_and_nothing_else(
    backend: ModuleType, source: str, told: str | None
) -> None:
    assert renamed(backend, source) == (told or source, [])


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("import node", "`import node` is not renamed"),
        ("\nimport sys, node.server as s", "node/x.py:2: `import node.server` is not renamed"),
        ("from \\\n  node import rpc", "write it as `from node import ...`"),
        ("NOUNS = {'serve': 'cli.serve'}", '"cli.serve" names a module'),
        ("f'python -m cli.serve {x}'", '"cli.serve" names a module'),
        ("if __name__ == 'node.server:main': pass", '"node.server" names a module'),
        ("import_module('node')", '"node" names a package'),
        ("resources.files('node')", '"node" names a package'),
        ("run([executable, '-m', 'cli', 'dev'])", '"cli" names a package'),
    ],
)
def test_what_names_a_package_otherwise_is_refused_with_its_line(
    backend: ModuleType, source: str, problem: str
) -> None:
    _, problems = renamed(backend, source)

    assert len(problems) == 1
    assert problem in problems[0]
    assert problems[0].startswith("node/x.py:")


def wheel(path: Path, files: dict[str, str]) -> Path:
    with zipfile.ZipFile(path, "w") as packed:
        for name, content in {**files, f"{INFO}/RECORD": ""}.items():
            packed.writestr(name, content)
    return path


def test_packages_move_with_their_entry_points_and_sparks_modules_stay(
    backend: ModuleType, tmp_path: Path
) -> None:
    points = "[console_scripts]\na = cli.serve:main\nb = goqueue.cli:main\n"
    files = {
        "cli/serve.py": "from node import rpc\n",
        "node/static/x.js": "from node import rpc\n",
        "pyspark_goqueue.py": "from cli import serve\n",
        f"{INFO}/entry_points.txt": points,
        f"{INFO}/top_level.txt": "cli\nnode\npyspark_goqueue\n",
    }

    backend.rename_wheel(wheel(tmp_path / "made.whl", files), tmp_path / "target.whl")

    with zipfile.ZipFile(tmp_path / "target.whl") as packed:
        found = {name: packed.read(name).decode() for name in packed.namelist()}
    assert found.pop(f"{INFO}/RECORD").count("\n") == len(found) + 1
    assert set(found) - {f"{INFO}/entry_points.txt", f"{INFO}/top_level.txt"} == {
        "goqueue_server/__init__.py",
        "goqueue_server/py.typed",
        "goqueue_server/cli/serve.py",
        "goqueue_server/node/static/x.js",
        "pyspark_goqueue.py",
    }
    assert found["goqueue_server/cli/serve.py"] == "from goqueue_server.node import rpc\n"
    assert found["goqueue_server/node/static/x.js"] == files["node/static/x.js"]
    assert found["pyspark_goqueue.py"] == "from goqueue_server.cli import serve\n"
    told = points.replace("= cli.", "= goqueue_server.cli.")
    assert found[f"{INFO}/entry_points.txt"] == told
    assert found[f"{INFO}/top_level.txt"] == "goqueue_server\npyspark_goqueue\n"


def test_all_problems_are_told_at_once_and_no_wheel_is_written(
    backend: ModuleType, tmp_path: Path
) -> None:
    files = {"cli/a.py": "import node", "node/b.py": "X = 'cli.a'", "tools/c.py": ""}
    made = wheel(tmp_path / "made.whl", files)

    with pytest.raises(backend.NotRenamed) as raised:
        backend.rename_wheel(made, tmp_path / "target.whl")

    assert [line.partition(":")[0] for line in str(raised.value).split()[0:1]] == ["cli/a.py"]
    assert "node/b.py:1" in str(raised.value)
    assert "tools/c.py: whose is it?" in str(raised.value)
    assert not (tmp_path / "target.whl").exists()
