"""What Kubernetes shows of this node: labels of its pod, and its readiness gate, kept true."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from node.kubernetes.api import ApiProblem, Condition, KubernetesApi
from node.metrics import Metrics
from node.runtime.logger import get_logger
from node.runtime.periodic import Periodic

ROLE, LEADERS, GATE = "goqueue.io/role", "goqueue.io/leaders", "goqueue.io/in-sync"
DRAINED = "goqueue.io/drained"
"""Whether nothing is left on this node: the chart takes away several nodes at once only then."""
CONTROLLER, VOTER, LEARNER = "controller", "voter", "learner"
"""Leads the cluster group, votes in it, or follows it."""
TICK_S = 0.25
CHECK_S = 60.0
"""So often the pod is looked at though nothing changed here: others may have changed it."""
PAUSE_MAX_S = 30.0
OUT_OF_SYNC_S = 30.0
"""An open gate closes only after so long out of sync: any node serves any request meanwhile."""

_log = get_logger("kubernetes")


@dataclass(frozen=True, slots=True)
class Face:
    """`behind` is why this node is not in sync; empty where it is."""

    role: str
    leaders: int
    behind: str
    drained: bool = False

    @property
    def labels(self) -> dict[str, str]:
        drained = "true" if self.drained else "false"
        return {ROLE: self.role, LEADERS: str(self.leaders), DRAINED: drained}


class PodFace:
    """A service. Brings the pod to what `look` tells, at most once an interval; whatever others
    write there, and however often the API refuses, is made good later."""

    def __init__(
        self,
        api: KubernetesApi,
        metrics: Metrics,
        look: Callable[[], Face],
        interval_s: float,
    ) -> None:
        self._api = api
        self._metrics = metrics.kubernetes
        self._look = look
        self._interval_s = interval_s
        self._pause_s = 0.0
        self._behind_since_s: float | None = None
        self._opened = False
        self._told: tuple[dict[str, str], bool] | None = None
        self._told_s = 0.0
        self.grace_s: float | None = None
        """How long the pod gets to stop, once it was seen."""
        self._rounds = Periodic(
            "kubernetes-face", self._round, TICK_S, _log, "pod_part_failed", first_s=0.0
        )

    async def start(self) -> None:
        await self._rounds.start()

    async def stop(self) -> None:
        await self._rounds.stop()

    # private

    async def _round(self) -> float:
        loop = asyncio.get_running_loop()
        face = self._look()
        is_open = self._is_open(face, loop.time())
        is_due = loop.time() - self._told_s >= CHECK_S
        if not is_due and self._told == (face.labels, is_open):
            return TICK_S
        await self._bring(face, is_open)
        return max(self._interval_s, self._pause_s) + TICK_S

    async def _bring(self, face: Face, is_open: bool) -> None:
        try:
            await self._tell(face, is_open)
        except ApiProblem as problem:
            if problem.status == 409:  # somebody else changed the pod: looked at anew
                self._pause_s = self._interval_s
                return
            if not self._pause_s:
                _log.warning("pod_not_labelled", problem=str(problem))
            self._pause_s = min(max(self._interval_s, self._pause_s * 2), PAUSE_MAX_S)
        else:
            self._pause_s = 0.0
            self._told = (face.labels, is_open)
            self._told_s = asyncio.get_running_loop().time()

    async def _tell(self, face: Face, is_open: bool) -> None:
        pod = await self._api.pod()
        self.grace_s = pod.spec.termination_grace_period_seconds
        status = "True" if is_open else "False"
        gate = next((one for one in pod.status.conditions if one.type == GATE), None)
        if gate is None or gate.status != status:
            await self._api.condition(Condition(GATE, status, face.behind))
            pod = await self._api.pod()
        if any(pod.metadata.labels.get(name) != value for name, value in face.labels.items()):
            await self._api.label(face.labels, pod.metadata.resource_version)

    def _is_open(self, face: Face, now_s: float) -> bool:
        """Opens when this node is in sync, and then stays open through short troubles."""
        if not face.behind:
            self._behind_since_s, self._opened = None, True
        elif self._behind_since_s is None:
            self._behind_since_s = now_s
        elif now_s - self._behind_since_s >= OUT_OF_SYNC_S:
            self._opened = False
        self._metrics.in_sync.set(self._opened)
        return self._opened
