-- Computes: why a group's partitions moved, and for how long each of them paused. Partitions that
--   do not move never pause, and are not in it. The brokers remember a group's last 100.
-- Reads: rebalances
-- Columns: group; rebalance: the generation that it began; cause; started_at; duration_ms: null
--   while it runs; moved: partitions; fenced: whose owner did not let go by itself; in_flight:
--   messages that were taken back; pause_p50_ms, pause_max_ms: over the partitions that moved
SELECT
    `group`,
    rebalance,
    first(cause) AS cause,
    first(started_at) AS started_at,
    first(duration_ms) AS duration_ms,
    count(partition) AS moved,
    count_if(fenced) AS fenced,
    coalesce(sum(in_flight), 0) AS in_flight,
    percentile(pause_ms, 0.5D) AS pause_p50_ms,
    max(pause_ms) AS pause_max_ms
FROM rebalances
GROUP BY `group`, rebalance
ORDER BY `group`, rebalance
