"""What a consumer may still be given."""

from __future__ import annotations

from node.http.stream.credit import Outstanding
from node.http.stream.frames import CreditTotals


def test_credit_is_used_by_what_is_given_and_freed_by_what_is_settled():
    one = Outstanding(CreditTotals(2, 100))

    one.give("a", 30, None)
    assert (one.messages_left, one.bytes_left) == (1, 70)
    one.give("b", 10, None)
    assert one.messages_left == 0
    one.free("a")
    one.free("a")
    assert (one.messages_left, one.bytes_left, len(one)) == (1, 90, 1)


def test_without_bytes_left_no_message_is_given_and_the_last_may_be_larger():
    one = Outstanding(CreditTotals(10, 100))

    one.give("a", 99, None)
    assert one.messages_left == 9
    one.give("b", 500, None)

    assert (one.messages_left, one.bytes_left) == (0, 0)
    one.free("b")
    assert one.messages_left == 9


def test_totals_that_fall_below_what_is_outstanding_leave_nothing():
    one = Outstanding(CreditTotals(10, 100))
    for receipt in "abc":
        one.give(receipt, 10, None)

    one.totals = CreditTotals(2, 20)

    assert (one.messages_left, one.bytes_left) == (0, 0)


def test_leases_that_run_out_free_their_credit_and_extended_ones_later():
    one = Outstanding(CreditTotals(10, 100))
    one.give("a", 1, 10.0)
    one.give("b", 1, 10.0)
    one.give("c", 1, None)
    one.extend("b", 30.0)
    one.extend("unknown", 30.0)

    assert one.expire(9.0) == 10.0 and len(one) == 3
    assert one.expire(10.0) == 30.0 and len(one) == 2
    assert one.expire(30.0) is None and len(one) == 1


def test_a_receipt_that_is_given_again_is_counted_once():
    one = Outstanding(CreditTotals(10, 100))

    one.give("a", 30, None)
    one.give("a", 40, None)

    assert (one.messages_left, one.bytes_left) == (9, 60)


def test_what_is_of_partitions_that_were_taken_away_counts_no_more():
    one = Outstanding(CreditTotals(3, 100))
    one.give("a", 10, None, ("orders", 0))
    one.give("b", 20, None, ("orders", 1))

    one.keep({("orders", 1)})

    assert (one.messages_left, one.bytes_left) == (2, 80)
