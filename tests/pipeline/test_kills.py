"""One seeded kill of each path; `make pipeline-kills` does twenty and more."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.session import JAVA_MISSING, has_java
from tests.cluster.processes import Cluster
from tests.pipeline.kill_query import PATHS
from tests.pipeline.kills import Scene, plan

SEED = 8


def test_a_query_killed_within_a_micro_batch_loses_and_doubles_no_row(
    cluster: Cluster, tmp_path: Path
) -> None:
    """kill -9 to the driver and its JVM; then it goes on from its checkpoints, on both paths."""
    if not has_java():
        pytest.skip(JAVA_MISSING)

    tale = Scene(cluster, "kills", tmp_path / "query", SEED).run(plan(SEED, 1))

    assert tale.faults == []
    assert (tale.kills["query"], tale.rows) == (1, 450)
    assert sum(tale.in_batch[path] for path in PATHS) >= 1, "the kill hit nothing"
