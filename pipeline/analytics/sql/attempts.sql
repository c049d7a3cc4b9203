-- Computes: how many deliveries messages took in each group, those that were given back not
--   counted.
-- Reads: outcomes
-- Columns: group; deliveries; messages: that took so many; share: of the group's messages
SELECT
    `group`,
    deliveries,
    count(*) AS messages,
    count(*) / sum(count(*)) OVER (PARTITION BY `group`) AS share
FROM outcomes
WHERE delivered_ms IS NOT NULL
GROUP BY `group`, deliveries
ORDER BY `group`, deliveries
