"""Clients' connections leave a node the files that its log needs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from node.http.budget.limits import HttpLimits
from node.open_files import CONNECTIONS_LEAST, OWN, UNSYNCED_MAX, unsynced_max, within


@pytest.mark.parametrize("files_max", [None, 20_000, 1 << 30])
def test_where_many_files_are_allowed_nothing_changes(files_max: int | None) -> None:
    assert within(HttpLimits(), files_max) == HttpLimits()


@pytest.mark.parametrize("files_max", [600, 1024, 4096, 8192, 9000])
def test_connections_leave_the_files_that_the_node_needs(files_max: int) -> None:
    limits = within(HttpLimits(), files_max)

    refused = min(1024, (files_max - OWN) // 2)
    assert CONNECTIONS_LEAST <= limits.connections_max <= files_max - OWN - refused
    assert limits.connections_per_address_max <= limits.connections_max


def test_who_may_open_few_files_still_serves_some() -> None:
    assert within(HttpLimits(), 100).connections_max == CONNECTIONS_LEAST


def test_process_allows_itself_what_it_may() -> None:
    program = (
        "import resource as r; from node.open_files import allowed, raise_limit;"
        "r.setrlimit(r.RLIMIT_NOFILE, (256, 2000)); raise_limit(); print(allowed())"
    )

    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert run.stdout == "2000\n", run.stderr


@pytest.mark.parametrize("files_max", [None, 100, 1024, 9000, 20_000, 1 << 30])
def test_the_log_keeps_no_more_files_open_than_are_left_to_it(files_max: int | None) -> None:
    if files_max is None:
        assert unsynced_max(files_max) == UNSYNCED_MAX
        return
    connections = within(HttpLimits(), files_max).connections_max
    assert unsynced_max(files_max) <= UNSYNCED_MAX
    assert connections + OWN + unsynced_max(files_max) <= max(files_max, OWN + 50)
