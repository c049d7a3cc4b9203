"""The fixtures in suites of their own; one of them is the guide's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("goqueue_broker")
"""What is imported by then is not imported anew by each suite."""
GUIDE = Path(__file__).resolve().parents[4] / "docs/guides/testing.md"


def run(pytester: pytest.Pytester, **files: str) -> pytest.RunResult:
    pytester.makepyfile(**files)
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    options = ("-p", "goqueue.testing.plugin", "-p", "no:cacheprovider")
    return pytester.runpytest_inprocess(*options)


def test_the_guides_suite_passes(pytester: pytest.Pytester) -> None:
    programs = re.findall(r"```python\n# (\w+)\.py\n(.*?)```", GUIDE.read_text(), re.S)
    assert [name for name, _ in programs] == ["mailer", "test_mailer", "test_with_unittest"]

    run(pytester, **dict(programs)).assert_outcomes(passed=6)


def test_a_test_that_fails_shows_what_is_not_done(pytester: pytest.Pytester) -> None:
    told = run(
        pytester,
        test_it="""
        def test_it(goqueue_broker, goqueue_client):
            goqueue_client.publish("jobs", "left undone")
            goqueue_client.receive("mail", "jobs")
            goqueue_broker.pause()
            assert False
        """,
    )

    told.assert_outcomes(failed=1)
    told.stdout.fnmatch_lines(
        ["*goqueue: messages that are not done*", "jobs:0:0 b'left undone' in_progress*"]
    )
    told.stdout.fnmatch_lines(["*DELIVERED group=mail attempt=1*"])


def test_both_kinds_of_async_tests_take_the_fixtures(pytester: pytest.Pytester) -> None:
    told = run(
        pytester,
        test_it="""
        import pytest

        @pytest.mark.asyncio
        async def test_asyncio(goqueue_async_client):
            await goqueue_async_client.publish("jobs", "a")
            assert len(await goqueue_async_client.receive("mail", "jobs")) == 1

        @pytest.fixture
        def anyio_backend():
            return "asyncio"

        @pytest.mark.anyio
        async def test_anyio(goqueue_async_client, goqueue_broker):
            await goqueue_async_client.publish("jobs", "a", delay="1h")
            goqueue_broker.clock.advance("1h")
            assert len(await goqueue_async_client.receive("mail", "jobs")) == 1
        """,
    )

    told.assert_outcomes(passed=2)
