-- Computes: one row for each message and each group that had anything to do with it.
-- Reads: events, subjects
-- Columns: topic, partition, offset, group, lane, key, published_ms, due_ms, deliver_at_ms;
--   first_ms: of the group's events; delivered_ms, delivered_index, delivered_to: its first
--   delivery; acked_ms, acked_by: its first acknowledgement; done_ms, done_index: when it was first
--   settled, dead, skipped or withdrawn; deliveries: those that were not given back; is_dead: it is
--   a dead letter now;
--   died_ms, died_of: its last death
WITH of_group AS (
    SELECT
        topic, partition, offset, `group`,
        min(timestamp) AS first_at,
        min(timestamp) FILTER (WHERE event_type = 'DELIVERED') AS delivered_at,
        min_by(consumer, struct(index, seq)) FILTER (WHERE event_type = 'DELIVERED')
            AS delivered_to,
        min(index) FILTER (WHERE event_type = 'DELIVERED') AS delivered_index,
        min(index) FILTER (
            WHERE event_type IN ('ACKNOWLEDGED', 'DEAD_LETTERED', 'SKIPPED')
        ) AS done_index,
        min(timestamp) FILTER (WHERE event_type = 'ACKNOWLEDGED') AS acked_at,
        min_by(consumer, struct(index, seq)) FILTER (WHERE event_type = 'ACKNOWLEDGED')
            AS acked_by,
        min(timestamp) FILTER (
            WHERE event_type IN ('ACKNOWLEDGED', 'DEAD_LETTERED', 'SKIPPED')
        ) AS done_at,
        count_if(event_type = 'DELIVERED') - count_if(event_type = 'RELEASED') AS deliveries,
        max_by(event_type, struct(index, seq)) FILTER (
            WHERE event_type IN ('DEAD_LETTERED', 'REDRIVEN', 'PURGED', 'REPLAYED', 'ACKNOWLEDGED')
        ) = 'DEAD_LETTERED' AS is_dead,
        max(timestamp) FILTER (WHERE event_type = 'DEAD_LETTERED') AS died_at,
        max_by(reason, struct(index, seq)) FILTER (WHERE event_type = 'DEAD_LETTERED') AS died_of
    FROM events
    WHERE `group` IS NOT NULL
    GROUP BY topic, partition, offset, `group`
)
SELECT
    topic, partition, offset, `group`, lane, key_text AS key,
    published_ms, due_ms, deliver_at_ms,
    unix_millis(first_at) AS first_ms,
    unix_millis(delivered_at) AS delivered_ms,
    coalesce(delivered_to, '') AS delivered_to,
    delivered_index,
    least(done_index, withdrawn_index) AS done_index,
    unix_millis(acked_at) AS acked_ms,
    coalesce(acked_by, '') AS acked_by,
    least(unix_millis(done_at), withdrawn_ms) AS done_ms,
    deliveries,
    coalesce(is_dead, false) AS is_dead,
    unix_millis(died_at) AS died_ms,
    died_of
FROM of_group JOIN subjects USING (topic, partition, offset)
