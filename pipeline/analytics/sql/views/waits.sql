-- Computes: one row for each delivery: for how long the message was ready before it, and what was
--   ready before it. First deliveries count from when the message was due, and the group had taken
--   anything of the partition: who receives nothing has no bound. In groups that keep the order of
--   keys, they count from when the key's earlier messages were done.
-- Reads: deliveries, outcomes, groups
-- Columns: topic, partition, offset, group, lane, number, ready_ms, delivered_ms, wait_ms;
--   lane_max_wait_ms, lane_share: the group's; ahead: messages below the highest lane that were
--   ready before it and not delivered, and those that came again or came due while it waited, as
--   they take their places by offset; taken: deliveries of the group in the partition meanwhile, its
--   own included; taken_late: those of them from when it had waited for lane_max_wait_ms to before
--   its own
WITH first_ready AS (
    SELECT
        outcomes.topic, outcomes.partition, outcomes.offset, outcomes.`group`,
        lane_max_wait_ms, lane_share, due_ms > published_ms AS is_delayed,
        greatest(
            due_ms,
            groups.created_ms,
            min(delivered_ms) OVER of_partition,
            CASE WHEN groups.ordering = 'key' AND outcomes.key IS NOT NULL THEN max(done_ms) OVER (
                PARTITION BY outcomes.topic, outcomes.partition, outcomes.`group`, outcomes.key
                ORDER BY outcomes.offset
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            ) END
        ) AS ready_ms
    FROM outcomes LEFT JOIN groups USING (`group`)
    WINDOW of_partition AS (PARTITION BY outcomes.topic, outcomes.partition, outcomes.`group`)
),
timed AS (
    SELECT
        topic, partition, offset, `group`, lane, number, delivered_ms, lane_max_wait_ms, lane_share,
        is_delayed,
        least(
            CASE WHEN number = 1 THEN first_ready.ready_ms ELSE deliveries.ready_ms END,
            delivered_ms
        ) AS ready_ms
    FROM deliveries JOIN first_ready USING (topic, partition, offset, `group`)
),
-- Each of them three times: as it became ready, had waited for long, and was delivered.
steps AS (
    SELECT
        *,
        CASE step
            WHEN 1 THEN ready_ms
            WHEN 2 THEN least(ready_ms + lane_max_wait_ms, delivered_ms)
            ELSE delivered_ms
        END AS ms
    FROM timed
    LATERAL VIEW explode(array(1, 2, 3)) AS step
    WHERE ready_ms IS NOT NULL
),
counted AS (
    SELECT
        *,
        sum(CASE WHEN lane = 'critical' OR step = 2 THEN 0 WHEN step = 1 THEN 1 ELSE -1 END)
            OVER one_by_one AS waiting,
        count_if(step = 1 AND (number > 1 OR is_delayed)) OVER so_far AS came_again,
        count_if(step = 3) OVER so_far AS taken,
        count_if(step = 3) OVER before AS taken_before
    FROM steps
    WINDOW
        one_by_one AS (
            PARTITION BY topic, partition, `group`
            ORDER BY ms, step, offset, number
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ),
        so_far AS (
            PARTITION BY topic, partition, `group`
            ORDER BY ms
            RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ),
        before AS (
            PARTITION BY topic, partition, `group`
            ORDER BY ms
            RANGE BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        )
)
SELECT
    topic, partition, offset, `group`, lane, number,
    first(ready_ms) AS ready_ms,
    first(delivered_ms) AS delivered_ms,
    first(delivered_ms) - first(ready_ms) AS wait_ms,
    first(lane_max_wait_ms) AS lane_max_wait_ms,
    first(lane_share) AS lane_share,
    greatest(
        0,
        max(CASE WHEN step = 1 THEN waiting END) - 1
        + max(CASE step WHEN 3 THEN came_again END) - max(CASE step WHEN 1 THEN came_again END)
    ) AS ahead,
    max(CASE step WHEN 3 THEN taken END) - max(CASE step WHEN 1 THEN taken END) AS taken,
    greatest(
        0, max(CASE step WHEN 3 THEN taken_before END) - max(CASE step WHEN 2 THEN taken END)
    ) AS taken_late
FROM counted
GROUP BY topic, partition, offset, `group`, lane, number
