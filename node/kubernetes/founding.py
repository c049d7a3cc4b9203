"""Nobody founds a new cluster where one was: its id is kept in a ConfigMap, beside the volumes.

Nodes whose volumes are all empty look like a first start. Whoever is about to found a cluster
therefore writes its id into the ConfigMap first, and founds it only if that id stands there
afterwards. All that found together are about to found the same id, so they agree. Where another id
stands there, a cluster was here and its data is not: that is told to people, and nothing is
founded until somebody removes the key. What can't be read is asked for again, and founding waits.

A cluster that exists is not held up by any of this. One that is older than the ConfigMap has its id
written there by the first of its nodes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from node.config.pod_names import RECORD_KEY
from node.kubernetes.api import ApiProblem, ClusterRecord
from node.runtime.logger import get_logger
from node.runtime.periodic import Periodic

PAUSE_S = 0.5
PAUSE_MAX_S = 10.0
CHECK_S = 60.0
"""So often the id of a cluster that exists is looked for: somebody may have removed it."""
CONFLICT = 409
MISSING = 404

_log = get_logger("kubernetes")


class Record(Protocol):
    """Where the id is kept, as `node.kubernetes.api.KubernetesApi` keeps it."""

    async def cluster_record(self) -> ClusterRecord: ...

    async def record_cluster(self, cluster: str, version: str) -> None: ...


class Founding:
    """A service. Loop thread only. `current` is the id of the cluster that this node belongs to, 0
    for none; `changed` is called where `may_found` answers otherwise than before; `complain` is
    told, once, that another cluster was here."""

    def __init__(
        self,
        record: Record,
        name: str,
        *,
        current: Callable[[], int],
        changed: Callable[[], None],
        complain: Callable[[str], Awaitable[None]],
    ) -> None:
        self._record = record
        self._name = name
        self._current = current
        self._changed = changed
        self._complain = complain
        self._asked = 0
        self._claimed = 0
        self._problem = ""
        self._pause_s = PAUSE_S
        self._rounds = Periodic(
            "kubernetes-founding", self._ask, CHECK_S, _log, "pod_part_failed", first_s=0.0
        )

    async def start(self) -> None:
        await self._rounds.start()

    async def stop(self) -> None:
        await self._rounds.stop()

    def may_found(self, cluster: int) -> str:
        """Why this cluster must not be founded now; empty where it may. Never waits: where it is
        not known yet, it is found out, and `changed` called."""
        if cluster == self._claimed:
            return ""
        if cluster != self._asked:
            self._asked, self._problem = cluster, ""
            self._rounds.wake()
        return self._problem or f"the cluster is forming: ConfigMap {self._name} is asked"

    # private

    async def _ask(self) -> float:
        is_known = await self._round()
        self._pause_s = PAUSE_S if is_known else min(self._pause_s * 2, PAUSE_MAX_S)
        return CHECK_S if is_known else self._pause_s

    async def _round(self) -> bool:
        """Whether the ConfigMap names the cluster that is, or is about to be; true, too, where
        there is none to name."""
        current = self._current()
        cluster = current or self._asked
        if not cluster:
            return False
        try:
            found = await self._claim(_text(cluster))
        except ApiProblem as problem:
            self._explain(self._unread(problem))
            return False
        if found != _text(cluster):
            problem_found = self._other(found, current)
            if self._explain(problem_found):
                await self._complain(problem_found)
            return False
        self._problem = ""
        if not current:
            self._claimed = cluster
            self._changed()
        return bool(current)

    async def _claim(self, cluster: str) -> str:
        """The id that stands in the ConfigMap: this one, if none did. Raises ApiProblem."""
        known = await self._record.cluster_record()
        if not known.cluster:
            try:
                await self._record.record_cluster(cluster, known.version)
            except ApiProblem as problem:
                if problem.status != CONFLICT:
                    raise
            known = await self._record.cluster_record()
            _log.info("cluster_recorded", config_map=self._name, cluster=known.cluster)
        return known.cluster

    def _unread(self, problem: ApiProblem) -> str:
        if problem.status == MISSING:
            why = "there is no such ConfigMap: `helm upgrade` makes it"
        else:
            why = str(problem)
        return (
            f"ConfigMap {self._name} tells whether a cluster was here before, and can't be read or "
            f"written ({why}): no cluster is founded until it can be"
        )

    def _other(self, found: str, current: int) -> str:
        if current:
            return (
                f"ConfigMap {self._name} names the cluster {found}, and this node belongs to "
                f"{_text(current)}: write the one that is right under {RECORD_KEY}"
            )
        return (
            f"the cluster is not formed: all volumes are empty, and ConfigMap {self._name} names "
            f"the cluster {found or 'of another attempt'} that was here. Bring its volumes back; "
            f"or, if its data is to be given up, remove the key {RECORD_KEY} from the ConfigMap, "
            "and a new cluster is founded"
        )

    def _explain(self, problem: str) -> bool:
        """Whether this was not said just before."""
        if problem == self._problem:
            return False
        self._problem = problem
        _log.warning("cluster_not_recorded", problem=problem)
        self._changed()  # so that the node says why, wherever it is asked
        return True


def _text(cluster: int) -> str:
    return f"{cluster:016x}"
