"""What every handler works with: the call, its body, its answer, and waiting for messages.

Read `call` first. `body` reads what was sent within its bounds; `answers` charges what is sent back
until the client has taken it; `long_poll` waits, no longer than the client listens. By `turn`,
requests that come at once do together what is cheaper once. `troubles` paces who tries again, and
`drain_watch` tells streams when to go to another node.
"""
