"""`goqueue-cli cluster`, `key` and `audit`: for whoever runs a cluster.

Read `command`, then `brokers` (they come and go), `moves` (partitions between them), `scrub`
(stored data are read again) and `upgrade` (versions). `key` and `audit` are nouns of their own: who
may come in, and what was done by whom.
"""
