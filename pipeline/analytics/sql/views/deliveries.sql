-- Computes: one row for each delivery of a message to a group: how it began, and how it ended.
-- Reads: events, subjects
-- Columns: topic, partition, offset, group, consumer ('' for nobody in particular), lane, key,
--   index and seq: of the event that began it; attempt; number: 1 for the message's first in the
--   group; delivered_ms; ended_as: the type of the event that ended it, null while it stands;
--   ended_reason; ended_ms; after: the type of the group's event before it, null for none;
--   after_reason; ready_ms: when it could be delivered again, null for a first delivery, and where
--   a parked key or a halted group was the cause of the wait; deliver_at_ms: of a delayed message
WITH steps AS (
    SELECT
        topic, partition, offset, `group`, consumer, attempt, index, seq, event_type,
        unix_millis(timestamp) AS ms,
        lead(event_type) OVER life AS ended_as,
        lead(reason) OVER life AS ended_reason,
        lead(unix_millis(timestamp)) OVER life AS ended_ms,
        lag(event_type) OVER life AS after,
        lag(reason) OVER life AS after_reason,
        coalesce(
            lag(CAST(attributes['retry_at_ms'] AS BIGINT)) OVER life,
            lag(unix_millis(timestamp)) OVER life
        ) AS again_ms,
        count_if(event_type = 'DELIVERED') OVER life AS number
    FROM events
    WHERE `group` IS NOT NULL AND event_type <> 'EXTENDED'
    WINDOW life AS (PARTITION BY topic, partition, offset, `group` ORDER BY index, seq)
)
SELECT
    topic, partition, offset, `group`, coalesce(consumer, '') AS consumer, lane, key_text AS key,
    index, seq, attempt, number, ms AS delivered_ms,
    ended_as, ended_reason, ended_ms, after, after_reason,
    CASE WHEN after NOT IN ('PARKED', 'HALTED') THEN again_ms END AS ready_ms,
    deliver_at_ms
FROM steps JOIN subjects USING (topic, partition, offset)
WHERE event_type = 'DELIVERED'
