-- Computes: deliveries that were not a message's first in the group, by what made it come again:
--   NACKED and REJECTED by its consumer, REDELIVERED as its lease ran out or its consumer was lost,
--   RELEASED when it was given back, REDRIVEN from the dead letters, REPLAYED by a reset.
-- Reads: deliveries
-- Columns: group; cause; reason; redeliveries; messages: how many different ones;
--   share: of all deliveries of the group
WITH counted AS (
    SELECT *, count(*) OVER (PARTITION BY `group`) AS of_group FROM deliveries
)
SELECT
    `group`,
    coalesce(after, 'unknown') AS cause,
    after_reason AS reason,
    count(*) AS redeliveries,
    count(DISTINCT topic, partition, offset) AS messages,
    count(*) / first(of_group) AS share
FROM counted
WHERE number > 1
GROUP BY `group`, after, after_reason
ORDER BY `group`, redeliveries DESC, cause, reason
