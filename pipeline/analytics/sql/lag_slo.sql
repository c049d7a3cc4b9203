-- Computes: for how much of each hour a group's lag in time (the age of its oldest message that
--   was due and not done) stayed within the objective, and how fast that burned the error budget:
--   1 is exactly what the target allows, 2 twice as fast.
-- Reads: lag_spans, outcomes, events
-- Columns: group; hour; observed_s: of the hour, from the group's first event to the last of all;
--   over_s: with a lag above the objective; attainment: 1 - over_s / observed_s;
--   burn: (1 - attainment) / (1 - target); lag_max_s
WITH begun AS (
    SELECT `group`, min(first_ms) AS begun_ms FROM outcomes GROUP BY `group`
),
hours AS (
    SELECT `group`, begun_ms, end_ms, 3600000 * hour AS hour_ms
    FROM begun
    CROSS JOIN (SELECT max(unix_millis(timestamp)) AS end_ms FROM events)
    LATERAL VIEW explode(sequence(begun_ms DIV 3600000, end_ms DIV 3600000)) AS hour
),
observed AS (
    SELECT
        `group`, hour_ms,
        least(end_ms, hour_ms + 3600000) - greatest(begun_ms, hour_ms) AS observed_ms
    FROM hours
),
spans AS (
    SELECT *, 3600000 * hour AS hour_ms
    FROM lag_spans
    LATERAL VIEW explode(sequence(from_ms DIV 3600000, (until_ms - 1) DIV 3600000)) AS hour
),
lagging AS (
    SELECT
        `group`, hour_ms,
        greatest(
            0,
            least(until_ms, hour_ms + 3600000)
            - greatest(from_ms, since_ms + :lag_objective_ms, hour_ms)
        ) AS over_ms,
        least(until_ms, hour_ms + 3600000) - since_ms AS lag_ms
    FROM spans
)
SELECT
    `group`,
    timestamp_millis(hour_ms) AS hour,
    first(observed_ms) / 1000 AS observed_s,
    coalesce(sum(over_ms), 0) / 1000 AS over_s,
    1 - coalesce(sum(over_ms), 0) / first(observed_ms) AS attainment,
    coalesce(sum(over_ms), 0) / first(observed_ms) / (1 - :lag_target) AS burn,
    coalesce(max(lag_ms), 0) / 1000 AS lag_max_s
FROM observed LEFT JOIN lagging USING (`group`, hour_ms)
WHERE observed_ms > 0
GROUP BY `group`, hour_ms
ORDER BY `group`, hour
