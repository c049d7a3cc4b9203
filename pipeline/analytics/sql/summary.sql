-- Computes: what the figures are of.
-- Reads: subjects, events, outcomes
-- Columns: messages: stored or told of by events; stored; value_bytes; keys; delayed; restored: by
--   a replay; events; groups; deliveries; acknowledged: in all groups together; dead: dead letters
--   now, likewise; first_at, last_at: of messages and events
SELECT
    messages, stored, value_bytes, keys, delayed, restored,
    events, groups, deliveries, acknowledged, dead,
    least(first_published_at, first_event_at) AS first_at,
    greatest(last_published_at, last_event_at) AS last_at
FROM (
    SELECT
        count(*) AS messages,
        count_if(is_stored) AS stored,
        coalesce(sum(value_bytes), 0) AS value_bytes,
        count(DISTINCT key_text) AS keys,
        count(deliver_at_ms) AS delayed,
        count(replay_id) AS restored,
        timestamp_millis(min(published_ms)) AS first_published_at,
        timestamp_millis(max(published_ms)) AS last_published_at
    FROM subjects
)
CROSS JOIN (
    SELECT
        count(*) AS events,
        count_if(event_type = 'DELIVERED') AS deliveries,
        min(timestamp) AS first_event_at,
        max(timestamp) AS last_event_at
    FROM events
)
CROSS JOIN (
    SELECT
        count(acked_ms) AS acknowledged,
        count_if(is_dead) AS dead,
        count(DISTINCT `group`) AS groups
    FROM outcomes
)
