-- Computes: which message was a group's oldest that was due and not done, and when: between
--   `from_ms` and `until_ms` the group's lag grew from `from_ms - since_ms` to
--   `until_ms - since_ms`; at all other times it was zero. Exact, not sampled: in the order in
--   which messages are due, one is the oldest from when all before it are done.
-- Reads: subjects, events, outcomes
-- Columns: group, topic, partition, offset, since_ms, from_ms, until_ms
WITH begun AS (
    SELECT `group`, topic, min(first_ms) AS begun_ms
    FROM outcomes
    GROUP BY `group`, topic
),
-- Every message beside every group, whether or not the group ever got it.
all_pairs AS (
    SELECT
        `group`, topic, partition, offset, due_ms, published_ms, begun_ms, end_ms,
        least(coalesce(done_ms, withdrawn_ms, end_ms), end_ms) AS done_ms,
        min(touched_offset) OVER (PARTITION BY `group`, topic, partition) AS first_offset
    FROM begun
    CROSS JOIN (SELECT max(unix_millis(timestamp)) AS end_ms FROM events)
    JOIN subjects USING (topic)
    LEFT JOIN (
        SELECT `group`, topic, partition, offset, offset AS touched_offset, done_ms FROM outcomes
    ) USING (`group`, topic, partition, offset)
),
-- Its own are those from its first message of a partition on, or where it had none yet, what was
-- published since it began.
in_turn AS (
    SELECT
        *,
        max(done_ms) OVER (
            PARTITION BY `group`
            ORDER BY due_ms, topic, partition, offset
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS all_before_done_ms
    FROM all_pairs
    WHERE due_ms IS NOT NULL
        AND (offset >= first_offset OR (first_offset IS NULL AND published_ms >= begun_ms))
)
SELECT
    `group`, topic, partition, offset,
    due_ms AS since_ms,
    greatest(due_ms, begun_ms, all_before_done_ms) AS from_ms,
    done_ms AS until_ms
FROM in_turn
WHERE done_ms > greatest(due_ms, begun_ms, all_before_done_ms)
