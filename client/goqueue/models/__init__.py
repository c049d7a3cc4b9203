"""What programs hand to the library and get back: messages, topics, groups, settles, options.

Nothing here asks a cluster. Read `messages`, `topics` and `groups` (what calls answer), `queued`
and `settles` (messages of a group, and what becomes of them), `times` and `options` (how arguments
are written), and `failures` (the errors that only a client can have).
"""
