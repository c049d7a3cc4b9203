-- Computes: a group's lag over time, as a line: the age of its oldest message that was due and not
--   done. Of a long line, the parts with the highest peaks.
-- Reads: lag_spans
-- Columns: group; from_at, until_at; from_s, until_s: the lag at both; outside of all rows it is 0
WITH ranked AS (
    SELECT
        *,
        row_number() OVER (
            PARTITION BY `group` ORDER BY until_ms - since_ms DESC, from_ms
        ) AS rank
    FROM lag_spans
)
SELECT
    `group`,
    timestamp_millis(from_ms) AS from_at,
    timestamp_millis(until_ms) AS until_at,
    (from_ms - since_ms) / 1000 AS from_s,
    (until_ms - since_ms) / 1000 AS until_s
FROM ranked
WHERE rank <= :points_max
ORDER BY `group`, from_at
