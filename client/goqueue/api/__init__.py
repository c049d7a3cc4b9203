"""`AsyncClient`: everything that a program may ask of a cluster.

Read `client` (topics, publishing, reading, the cluster) and `subjects`, which lists the other parts
that it is made of: those of the queue, and here `placement` (brokers and moves), `search` and
`why` (where a message is, and why it is not delivered), `events`, `archived` and `replay` (what is
in the archive). `topic_settings` is how a topic's settings travel.
"""
