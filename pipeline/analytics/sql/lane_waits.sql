-- Computes: how long messages were ready before they were delivered, by lane, against the bound on
--   waiting: lane_max_wait + lane_share * (ahead + 1) / rate. One that has waited for lane_max_wait
--   has its turn within lane_share * (ahead + 1) deliveries; what time that takes depends on the
--   rate at which the group takes messages of the partition from then on. The highest lane has no
--   such bound: it goes first.
-- Reads: waits
-- Columns: group; lane; count; p50_ms, p95_ms, p99_ms, max_ms; lane_max_wait_ms; bound_ms: of the
--   longest wait; share_of_bound: the most that one used up of the deliveries that it allows;
--   over_bound: how many used up more, which is a bug of the brokers
WITH bounded AS (
    SELECT
        *,
        CASE WHEN lane <> 'critical' THEN lane_share * (ahead + 1) END AS turns,
        CASE
            WHEN wait_ms > lane_max_wait_ms AND taken_late > 0
            THEN (wait_ms - lane_max_wait_ms) / taken_late
            ELSE wait_ms / nullif(taken, 0)
        END AS turn_ms
    FROM waits
),
grouped AS (
    SELECT
        `group`, lane,
        count(*) AS count,
        percentile(wait_ms, array(0.5D, 0.95D, 0.99D)) AS percentiles,
        max(wait_ms) AS max_ms,
        first(lane_max_wait_ms) AS lane_max_wait_ms,
        max_by(lane_max_wait_ms + turns * turn_ms, struct(wait_ms, ahead)) AS bound_ms,
        max(taken_late / turns) AS share_of_bound,
        count_if(taken_late > turns) AS over_bound
    FROM bounded
    GROUP BY `group`, lane
)
SELECT
    `group`, lane, count,
    percentiles[0] AS p50_ms, percentiles[1] AS p95_ms, percentiles[2] AS p99_ms, max_ms,
    lane_max_wait_ms, bound_ms, share_of_bound, over_bound
FROM grouped
ORDER BY
    `group`, array_position(array('critical', 'high', 'normal', 'low', 'background'), lane)
