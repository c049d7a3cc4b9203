"""Finding messages, and what happened to one: searches, timelines, events, and why it waits.

Read `search` first. `message_ref` is how a request names one message, for `timeline` and `why`;
`why_texts` has a sentence for each reason. `events` are a partition's, in bulk.
"""
