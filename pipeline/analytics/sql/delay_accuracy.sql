-- Computes: how late delayed messages were. stage `due`: from the time asked for to the log's first
--   entry at or after it, which is when the broker lets the message go; `delivery`: to the first
--   delivery in the group, so with consumers that wait for it.
-- Reads: subjects, outcomes, events
-- Columns: stage; group: null for `due`; count; early: how many came before their time;
--   p50_ms, p95_ms, p99_ms, max_ms
WITH lateness AS (
    SELECT
        'due' AS stage,
        CAST(NULL AS STRING) AS `group`,
        unix_millis(timestamp) - deliver_at_ms AS ms
    FROM events JOIN subjects USING (topic, partition, offset)
    WHERE event_type = 'DUE' AND deliver_at_ms IS NOT NULL
    UNION ALL
    SELECT 'delivery', `group`, delivered_ms - deliver_at_ms
    FROM outcomes
    WHERE deliver_at_ms IS NOT NULL AND delivered_ms IS NOT NULL
),
grouped AS (
    SELECT
        stage, `group`,
        count(*) AS count,
        count_if(ms < 0) AS early,
        percentile(ms, array(0.5D, 0.95D, 0.99D)) AS percentiles,
        max(ms) AS max_ms
    FROM lateness
    GROUP BY stage, `group`
)
SELECT
    stage, `group`, count, early,
    percentiles[0] AS p50_ms, percentiles[1] AS p95_ms, percentiles[2] AS p99_ms, max_ms
FROM grouped
ORDER BY stage DESC, `group`
