"""The rule by which both ends of a pair pick the same connection."""

from __future__ import annotations

import pytest

from goqueue.wire.types import NodeId
from raft.link.admission import InsecureListen, Standing, Verdict, check_listen, judge_inbound

A, B = NodeId("a"), NodeId("b")


def test_node_without_a_link_or_a_dial_accepts() -> None:
    for me, peer in ((A, B), (B, A)):
        assert judge_inbound(me, peer, Standing.NONE, challenged=False) is Verdict.ACCEPT


def test_of_two_crossing_dials_exactly_one_is_accepted() -> None:
    verdicts = {
        judge_inbound(A, B, Standing.NONE, challenged=True),
        judge_inbound(B, A, Standing.NONE, challenged=True),
    }

    assert verdicts == {Verdict.ACCEPT, Verdict.REFUSE}
    assert judge_inbound(A, B, Standing.NONE, challenged=True) is Verdict.REFUSE


@pytest.mark.parametrize("challenged", [False, True])
def test_peer_that_dials_again_has_lost_what_it_dialed(challenged: bool) -> None:
    for me, peer in ((A, B), (B, A)):
        verdict = judge_inbound(me, peer, Standing.ACCEPTED, challenged=challenged)
        assert verdict is Verdict.REPLACE


@pytest.mark.parametrize("challenged", [False, True])
def test_connection_this_node_dialed_is_probed_and_kept(challenged: bool) -> None:
    for me, peer in ((A, B), (B, A)):
        verdict = judge_inbound(me, peer, Standing.DIALED, challenged=challenged)
        assert verdict is Verdict.REFUSE_AND_PROBE


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "peers.svc", "", "fe80::1"])
def test_unprotected_listening_stays_on_loopback(host: str) -> None:
    with pytest.raises(InsecureListen):
        check_listen(host, is_protected=False)
    check_listen(host, is_protected=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback_needs_no_protection(host: str) -> None:
    check_listen(host, is_protected=False)
