"""One cluster with everything in it, and one browser, for all tests of this folder."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.cluster.processes import Cluster
from tests.console.chromium import Chromium, Page, find
from tests.console.scene import Scene, keep_publishing, make_scene


@pytest.fixture(scope="session")
def program() -> str:
    found = find()
    if found is None:
        pytest.skip("there is no chromium here; `make programs` installs it, as root with apt-get")
    return found


@pytest.fixture(scope="session")
def cluster(program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("console"), 3).start() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def scene(cluster: Cluster) -> Scene:
    scene = make_scene(cluster)
    keep_publishing(cluster[0], 3)
    return scene


@pytest.fixture
async def page(program: str) -> AsyncIterator[Page]:
    async with Chromium(program) as browser:
        yield await browser.page()
