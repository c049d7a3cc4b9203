-- Computes: how long messages took, as percentiles. publish_to_delivery: from when a message could
--   be delivered (published, or due if it was delayed) to its first delivery in the group;
--   delivery_to_ack: from a delivery to the acknowledgement that ended it; end_to_end: from when it
--   could be delivered to its first acknowledgement, failed attempts included.
-- Reads: outcomes, deliveries
-- Columns: stage; by: what a row is of (group, consumer, lane, or consumer and lane); group;
--   consumer and lane: null where a row is of all of them, "(none)" for receives without a member;
--   count; p50_ms, p95_ms, p99_ms: with linear interpolation; max_ms
WITH durations AS (
    SELECT
        'publish_to_delivery' AS stage, `group`, delivered_to AS consumer, lane,
        delivered_ms - due_ms AS ms
    FROM outcomes
    WHERE delivered_ms IS NOT NULL AND due_ms IS NOT NULL
    UNION ALL
    SELECT 'delivery_to_ack', `group`, consumer, lane, ended_ms - delivered_ms
    FROM deliveries
    WHERE ended_as = 'ACKNOWLEDGED'
    UNION ALL
    SELECT 'end_to_end', `group`, acked_by, lane, acked_ms - due_ms
    FROM outcomes
    WHERE acked_ms IS NOT NULL AND due_ms IS NOT NULL
),
named AS (
    SELECT stage, `group`, coalesce(nullif(consumer, ''), '(none)') AS consumer, lane, ms
    FROM durations
),
grouped AS (
    SELECT
        stage, `group`, consumer, lane,
        CASE 2 * grouping(consumer) + grouping(lane)
            WHEN 3 THEN 'group'
            WHEN 2 THEN 'lane'
            WHEN 1 THEN 'consumer'
            ELSE 'consumer and lane'
        END AS by,
        count(*) AS count,
        percentile(ms, array(0.5D, 0.95D, 0.99D)) AS percentiles,
        max(ms) AS max_ms
    FROM named
    GROUP BY stage, `group`, GROUPING SETS ((), (consumer), (lane), (consumer, lane))
)
SELECT
    stage, by, `group`, consumer, lane, count,
    percentiles[0] AS p50_ms, percentiles[1] AS p95_ms, percentiles[2] AS p99_ms, max_ms
FROM grouped
ORDER BY
    array_position(array('group', 'consumer', 'lane', 'consumer and lane'), by),
    array_position(array('publish_to_delivery', 'delivery_to_ack', 'end_to_end'), stage),
    `group`, consumer,
    array_position(array('critical', 'high', 'normal', 'low', 'background'), lane)
