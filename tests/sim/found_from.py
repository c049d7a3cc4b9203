"""Seeds by which planted bugs are soon found."""

from __future__ import annotations

FOUND_FROM = {
    "ack-before-fsync": 4,
    "discarded-means-applied": 208,
    "flights-ignored": 4,
    "twins-answered-anyway": 100,
    "commits-come-twice": 17,
    "commit-unchecked": 3,
    "former-grants-repeated": 124,
    "repeats-told": 7,
    "joiner-trusted": 72,
    "learners-stand-by": 11,
    "lease-kept": 2,
    "orderly-close-counted": 2,
    "loss-uncounted": 2,
    "streams-not-in-snapshot": 2,
    "runs-outlive-their-nodes": 2,
    "ids-in-flight-ignored": 15,
    "removed-come-back": 18,
    "expired-settles": 8,
    "any-owner-will-do": 8,
    "delayed-outlive-commits": 6,
    "receive-unchecked": 7,
    "redelivery-untold": 3,
    "attempts-miscounted": 4,
    "trimmed-while-delayed": 5,
    "kept-read-early": 15,
    "copy-misnamed": 5,
    "configuration-awaits-commit": 4,
    "settle-unchecked": 3,
    "lagging-counts-as-in-sync": 2,
    "repeats-choose": 1,
    "static-not-fenced": 1,
    "appender-kept": 13,
    "key-goes-on": 1,
    "older-owners": 8,
    "foreign-receipts": 1,
}
"""Where the search begins for bugs that the first seeds miss, or find late: seeds that were seen to
find them soon. It goes on over all of them."""
