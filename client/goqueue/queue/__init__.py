"""The calls of a queue, a part of the client each: groups, their members, and what they receive.

Read `receive` (take messages, settle them), `settling` (the requests that settle, shared by calls)
with `settle_results`, `riding` (settles that go with a receive), then `groups` and `members`,
`positions` (lag and committed offsets), `dead_letters`, and `schedules` (what comes later).
"""
