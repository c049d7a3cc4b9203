"""The HTTP front: a broker's methods as routes, and its errors as answers. Knows nothing of disks.

Of the node it imports only `node.api`; it is made, with all that it needs, at the node's root.

A request comes in through `connections`, is routed by `server`, passes `auth`, and reaches a
handler as a `Call` (`request`). Handlers stand by subject: `messages`, `topics`, `groups`, `queue`,
`lookup`, `placement`, `admin`, and `compat` for what only GoQueue's clients ask for; `console` is
the same as pages. `text` and `budget` lie below all of them: JSON and errors, and the memory that
clients may make this node hold.

Read `server` first, and in it the table of routes; then `request`, and the handler you are after.
"""
