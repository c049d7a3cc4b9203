"""Other protocols on the same log: each a thin listener over the broker, by the rules of HTTP.

`parts` is what a listener is given and what it is. `requests` is the one place that a command or a
call goes through: the key, what it may do, metrics, the audit log, spans, and how errors are told.
`wire` is one connection of those that read and write bytes themselves, and `connections` accepts
them. A room each: `redis`, `h2`, `grpc`.
"""
