"""One partition's replica: publishes, its queue, its reads, and messages' timelines.

Begin with `host` (PartitionHost: the state machine that puts all parts together), then
`append_queue` (publishes on their way into entries) and `queue` (the queue's operations, as
leader), with `consumer_activity` and `unreadable_messages` beside it. `timeline_lookup`, `trace`
and `offset_lookup` find what a log tells of a message; `indexer` keeps indexes up to date.
`metrics` and `queue_metrics` count. Below: `reading` (batches, messages and indexes of one log),
and above that `retention` (what of a log may go). `settled` is what goes when it is asked for.
"""
