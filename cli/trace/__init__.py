"""`goqueue-cli trace`: where a message is, what happened to it, and why it is not delivered.

Read `command` with `tree`, which prints one message's life. `follow`, `search`, `events` and `why`
are the other verbs; `default_command` lets the first one be left out.
"""
