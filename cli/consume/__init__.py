"""`goqueue-cli consume`, and `ack`, `nack`, `reject`, `extend`: messages that come out.

Read `command` first. Without a group, `reader` reads partitions, and `replay` the archive too, with
`replay_position` to go on from. With one, `group` prints what `member` or plain receives bring,
`until` stops at a time, and `settle` ends a lease by hand. `messages` is what a message looks like.
"""
