-- Computes: messages that died, by group, reason and key. One that died again after a redrive
--   counts once more.
-- Reads: events, outcomes
-- Columns: group; reason; key; deaths; messages: how many different ones; still_dead: of those, how
--   many are dead letters now; first_at, last_at: of the deaths
SELECT
    events.`group`,
    events.reason,
    outcomes.key,
    count(*) AS deaths,
    count(DISTINCT topic, partition, offset) AS messages,
    count(DISTINCT CASE WHEN is_dead THEN struct(topic, partition, offset) END) AS still_dead,
    min(timestamp) AS first_at,
    max(timestamp) AS last_at
FROM events JOIN outcomes USING (topic, partition, offset, `group`)
WHERE event_type = 'DEAD_LETTERED'
GROUP BY events.`group`, events.reason, outcomes.key
ORDER BY deaths DESC, `group`, reason, key
