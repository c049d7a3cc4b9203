"""Programs and library, run where `log.py`, `node.py` and so on are the user's, and raise."""

from __future__ import annotations

import json
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.processes import eventually, tail
from tests.ports import HOST, free_ports
from tests.wheels.installed import PACKAGES, Installed

STOPPED_S = 30


@contextmanager
def running(installed: Installed, port: int, log: Path, *command: str) -> Iterator[str]:
    """The URL of the node that the command starts; it is ready, and stops without an error."""
    url = f"http://{HOST}:{port}"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [installed.program(command[0]), *command[1:]],
            cwd=installed.users,
            env=installed.around(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )

    def is_ready() -> bool:
        assert process.poll() is None, tail(log)
        try:
            with urllib.request.urlopen(f"{url}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    try:
        eventually(lambda: f"ready; its log ends:\n{tail(log)}", is_ready)
        yield url
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOPPED_S) == 0, tail(log)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def server(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("server")
    port, peers = free_ports(2)
    words = ["--node-id", "n1", "--data", str(folder / "data"), "--http", f"{HOST}:{port}"]
    words += ["--peer-listen", f"{HOST}:{peers}", "--auto-create-topics"]
    with running(installed, port, folder / "log.txt", "goqueue", *words) as url:
        yield url


@pytest.mark.parametrize("name", PACKAGES)
def test_the_users_modules_would_be_found_and_ours_are_not(installed: Installed, name: str) -> None:
    """Else the other tests would show nothing."""
    theirs = installed.tried("python", "-c", f"import {name}")
    program = (
        f"import importlib.util, sys; sys.exit(importlib.util.find_spec({name!r}) is not None)"
    )
    ours = installed.tried("python", "-I", "-c", program)

    assert f"the {name}.py of the user was imported" in theirs.stderr
    assert ours.returncode == 0, "the checkout can be imported"


def test_every_module_that_needs_no_spark_is_imported(installed: Installed) -> None:
    program = (
        "import importlib, pkgutil, goqueue_server as ours\n"
        "found = pkgutil.walk_packages(ours.__path__, 'goqueue_server.')\n"
        "names = [one.name for one in found if not one.name.endswith('.__main__')]\n"
        "names = [name for name in names if not name.startswith('goqueue_server.pipeline.')]\n"
        "for name in names: importlib.import_module(name)\n"
        "print(len(names))\n"
    )

    assert int(installed.run("python", "-c", program)) > 400


@pytest.mark.parametrize("name", ["goqueue", "goqueue-cli", "goqueue-pipeline"])
def test_programs_tell_their_options(installed: Installed, name: str) -> None:
    assert f"Usage: {name}" in installed.run(name, "--help")


def test_nouns_are_found_and_modules_are_programs_too(installed: Installed) -> None:
    told = installed.run("goqueue-cli", "--help")
    nouns = [word for word in ("produce", "topic", "group", "cluster", "trace") if word in told]

    assert len(nouns) == 5
    assert "Usage: goqueue-cli trace" in installed.run("goqueue-cli", "trace", "--help")
    for module in ("goqueue", "goqueue_server.cli"):
        assert "goqueue-cli" in installed.run("python", "-m", module, "--version")


def test_server_and_command_line_publish_and_read(installed: Installed, server: str) -> None:
    installed.run("goqueue-cli", "-s", server, "topic", "create", "orders", "-p", "1")
    installed.run("goqueue-cli", "-s", server, "produce", "orders", "-m", "through the wheel")
    words = ("consume", "orders", "--from-beginning", "-n", "1")
    told = installed.run("goqueue-cli", "-s", server, *words)

    assert "through the wheel" in told


def test_a_users_program_publishes_and_receives(installed: Installed, server: str) -> None:
    program = installed.users / "application.py"
    program.write_text(
        "import sys\n"
        "from goqueue import Client\n"
        "with Client(sys.argv[1]) as client:\n"
        "    client.publish('emails', 'hello', key='k1')\n"
        "    (message,) = client.receive('senders', 'emails', limit=1, wait='20s')\n"
        "    client.ack(message)\n"
        "    print(message.text)\n"
        "assert not [name for name in sys.modules if name.startswith('goqueue_server')]\n"
    )

    assert installed.run("python", str(program), server) == "hello\n"


def test_pytest_has_the_fixtures(installed: Installed) -> None:
    suite = installed.users / "test_mails.py"
    suite.write_text(
        "import sys\n"
        "def test_without_it_nothing_of_the_server_is_imported():\n"
        "    assert not [name for name in sys.modules if name.startswith('goqueue_server')]\n"
        "def test_a_delay(goqueue_broker, goqueue_client):\n"
        "    goqueue_client.publish('mails', 'hello', delay='1h')\n"
        "    goqueue_broker.clock.advance('1h')\n"
        "    assert [m.text for m in goqueue_client.receive('mailer', 'mails')] == ['hello']\n"
    )
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", ".", str(suite))

    assert "2 passed" in installed.run("python", *words)


def test_a_directory_is_opened_by_the_engine_of_the_server(installed: Installed) -> None:
    program = installed.users / "folder.py"
    program.write_text(
        "import sys, goqueue\n"
        "with goqueue.open('./jobs') as client, goqueue.Queue('./jobs') as jobs:\n"
        "    client.publish('emails', 'hello')\n"
        "    jobs.put('through the socket')\n"
        "    (message,) = client.receive('senders', 'emails', limit=1, wait='20s')\n"
        "    print(message.text, jobs.get().value)\n"
        "assert 'goqueue_server.node.embedded.engine' in sys.modules\n"
    )

    assert installed.run("python", str(program)) == "hello through the socket\n"
    assert (installed.users / "jobs" / "wal").is_dir()


def test_with_no_target_the_command_lines_context_is_opened(
    installed: Installed, server: str
) -> None:
    home = installed.users / "context.yaml"
    home.write_text(f"current-context: here\ncontexts:\n  here:\n    server: {server}\n")
    program = (
        f"import os; os.environ['GOQUEUE_CONFIG'] = {str(home)!r}\n"
        "import goqueue; print(goqueue.open().version()['version'])"
    )

    assert installed.run("python", "-c", program).startswith("0.")


def test_the_console_has_its_templates_and_files(installed: Installed, server: str) -> None:
    with urllib.request.urlopen(f"{server}/ui") as answer:
        page = answer.read().decode()

    assert answer.status == 200
    assert "htmx" in page


def test_a_development_cluster_starts_its_nodes(installed: Installed, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    words = ("dev", "--nodes", "1", "--port", str(port), "--data", str(tmp_path / "data"))

    with running(installed, port, tmp_path / "log.txt", "goqueue-cli", *words):
        (node,) = json.loads((tmp_path / "data" / "cluster.json").read_text())["nodes"]

    assert "goqueue_server.cli.serve" in node["command"]
