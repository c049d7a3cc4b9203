"""Members of groups: joining, staying, leaving. A `Consumer` does all of it by itself."""

from __future__ import annotations

from collections.abc import Sequence

from goqueue.models.groups import MemberAnswer, TopicPartition
from goqueue.models.options import Assignor, GroupMode
from goqueue.models.times import Duration, duration_ms, duration_text
from goqueue.transport.calls import Calls, decode, given
from goqueue.transport.http import join


class Members:
    """The part of the client that knows members."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def join_group(
        self,
        group: str,
        topics: Sequence[str] = (),
        *,
        patterns: Sequence[str] = (),
        client_id: str = "",
        member: str | None = None,
        instance_id: str | None = None,
        session_timeout: Duration | None = None,
        rebalance_timeout: Duration | None = None,
        mode: GroupMode | None = None,
        assignor: Assignor | None = None,
        wait: Duration = 0.0,
        timeout_s: float | None = None,
    ) -> MemberAnswer:
        """Join a group, which is created where there is none, and get partitions of these topics
        and of those that match a pattern (`orders.*`), also ones created later.

        With the `instance_id` of a member, this one takes its place, which makes the call safe to
        repeat; `member` is one that is known and changes what it subscribes to. Waits up to `wait`
        for what it is to have. `mode` (exclusive, shared) and `assignor` (sticky, range,
        roundrobin) are for a group that is created. Raises `UnknownTopic`, `UnknownMember`.
        """
        wait_ms = duration_ms(wait, "wait")
        body = given(
            {
                "client_id": client_id,
                "topics": list(topics),
                "patterns": list(patterns) or None,
                "member_id": member,
                "instance_id": instance_id,
                "session_timeout": _text(session_timeout, "session_timeout"),
                "rebalance_timeout": _text(rebalance_timeout, "rebalance_timeout"),
                "lets_go": True,
                "mode": mode,
                "assignor": assignor,
                "wait": f"{wait_ms}ms",
            }
        )
        answer = await self._calls.post(
            "POST",
            join("groups", group, "join"),
            body,
            repeatable=bool(member or instance_id),
            wait_s=wait_ms / 1000,
            timeout_s=timeout_s,
        )
        return decode(answer.body, MemberAnswer)

    async def heartbeat(
        self,
        group: str,
        member: str,
        *,
        revision: str | None = None,
        wait: Duration = 0.0,
        let_go: Sequence[TopicPartition] = (),
        timeout_s: float | None = None,
    ) -> MemberAnswer:
        """Say that the member lives, and learn what it has; waits up to `wait` for anything else
        than what `revision` said. It works on the partitions in `let_go` no longer.

        Raises `UnknownMember` where it was not heard of for too long: join again.
        """
        wait_ms = duration_ms(wait, "wait")
        body = given(
            {
                "member_id": member,
                "revision": revision,
                "wait": f"{wait_ms}ms",
                "let_go": list(let_go) or None,
            }
        )
        answer = await self._calls.post(
            "POST",
            join("groups", group, "heartbeat"),
            body,
            repeatable=True,
            wait_s=wait_ms / 1000,
            timeout_s=timeout_s,
        )
        return decode(answer.body, MemberAnswer)

    async def leave_group(self, group: str, member: str, *, timeout_s: float | None = None) -> None:
        """Go, at once: what the member still has in flight comes to others as if it had not been
        delivered. Raises `UnknownMember`."""
        await self._calls.post(
            "POST",
            join("groups", group, "leave"),
            {"member_id": member},
            repeatable=True,
            timeout_s=timeout_s,
        )


def _text(duration: Duration | None, what: str) -> str | None:
    return None if duration is None else duration_text(duration, what)
