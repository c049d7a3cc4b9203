"""`AsyncClient`: everything that a program may ask of a cluster.

Read `client`, which lists the calls by part, and `admin`, which does so for operators; `parts` is
how a part's call becomes the client's, `options` what a client is made with, `moved` which calls
the admin has taken over. The parts that are here: `topics`, `publishing`, `reading`, `replay`
(what is in the archive), `events`, `search` and `why` (where a message is, and why it is not
delivered). Those of the queue are in the room `queue`, those of the admin in `admin`.
"""
