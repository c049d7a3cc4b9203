"""Requests to a cluster: which server, for how long, and when it is safe to ask again.

Read `http` first: all calls go through its `Transport`, which has a `channel` carry each attempt:
to `servers` by HTTP. `leaders` remembers which server leads a partition, `unreachable` says why one
was not reached, `tls` whom a client trusts; `calls` is what the parts of the client stand on,
`patience` waits for answers that a leader confirms, `pages` reads a partition page by page with it.
By `sharing`, calls that are made at the same time go in one request. `spans` tells OpenTelemetry of
all this, by `otel` where that is installed.
"""
