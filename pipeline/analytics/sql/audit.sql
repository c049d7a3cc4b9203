-- Computes: whether anything is missing, twice, or out of order. Allowed are a producer's id that
--   is repeated beyond the window of deduplication, or in another partition; and, in a group that
--   does not keep the order of keys, keys out of order, or delivered before the message before was
--   settled. All others are bugs, or damage.
-- Reads: findings, groups
-- Columns: check; group: null where it is about the topic; findings; messages: that they are about;
--   verdict: ok, found, or allowed: found where it is not promised otherwise
WITH checks AS (
    SELECT posexplode(array(
        'offset_gap', 'duplicate_offset', 'duplicate_message_id', 'key_order', 'key_not_settled',
        'delivered_while_leased', 'delivered_when_done', 'delivered_early'
    )) AS (place, check)
),
counted AS (
    SELECT check, `group`, count(*) AS findings, sum(count) AS messages
    FROM findings
    GROUP BY check, `group`
)
SELECT
    check,
    `group`,
    coalesce(findings, 0) AS findings,
    coalesce(messages, 0) AS messages,
    CASE
        WHEN findings IS NULL THEN 'ok'
        WHEN check = 'duplicate_message_id' THEN 'allowed'
        WHEN check IN ('key_order', 'key_not_settled') AND coalesce(ordering, 'none') <> 'key'
        THEN 'allowed'
        ELSE 'found'
    END AS verdict
FROM checks LEFT JOIN counted USING (check) LEFT JOIN groups USING (`group`)
ORDER BY array_position(array('found', 'allowed', 'ok'), verdict), place, `group`
