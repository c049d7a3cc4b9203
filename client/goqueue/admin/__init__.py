"""The calls of operators, a part of `client.admin` each.

Read `brokers` and `moves` (who holds which partition), `cluster` (health, versions), then what is
done to what others use: `topics`, `groups` and `redrives`.
"""
