"""Why, of the fake broker: as much as its groups in memory know."""

from __future__ import annotations

from delivery.lookup.verdict import Reason, Verdict
from goqueue.wire.types import Offset
from node.api.traces import GroupWhy, WhyView
from node.http.fake.group import FakeGroup
from node.http.fake.groups import FakeGroups


class FakeWhy(FakeGroups):
    """The part of `FakeBroker`."""

    node_id: str

    async def message_why(
        self, topic: str, partition: int, offset: Offset, group: str | None
    ) -> WhyView:
        log = self._log(topic, partition).partition
        names = [view.name for view in await self.list_groups()] if group is None else [group]
        view = WhyView(self._clock_ms(), None, Verdict("stored", []), [], self.node_id)
        if offset >= log.next:
            ended = Reason("not_published", 0, {"end": log.next})
            view.message = Verdict("unpublished", [ended])
        elif not names:
            view.message.reasons.append(Reason("no_group"))
        view.groups = [
            GroupWhy(
                name, _verdict(self._place(self._group(name), topic, partition), offset, log.next)
            )
            for name in names
        ]
        return view


def _verdict(group: FakeGroup, offset: int, end: int) -> Verdict:
    lease, letter = group.leases.get(offset), group.dead.get(offset)
    if offset >= end:
        return Verdict("unpublished", [Reason("not_published", 0, {"end": end})])
    if lease is not None:
        flying = Reason("in_flight", lease.deadline_ms, {"consumer": lease.member, "attempt": 1})
        return Verdict("in_flight", [flying], attempts=1)
    if letter is not None:
        since = {"since_ms": letter.died_ms, "attempts": letter.attempts}
        return Verdict(
            "dead",
            [
                Reason(
                    "dead", 0, {**since, "reason": letter.reason, "redrive": "yes", "redrives": 0}
                )
            ],
        )
    if offset < group.committed_offset:
        return Verdict("acked", [Reason("settled", 0, {"floor": group.committed_offset})])
    return Verdict("ready", [Reason("not_asked")], deliverable=True)
