-- Computes: what the audit found, one row each, up to a bound of each check; the bugs first.
-- Reads: findings
-- Columns: check; topic; partition; offset; group; key; count: messages that it is about; detail
WITH ranked AS (
    SELECT
        *,
        row_number() OVER (PARTITION BY check ORDER BY topic, partition, offset, `group`) AS rank
    FROM findings
)
SELECT check, topic, partition, offset, `group`, key, count, detail
FROM ranked
WHERE rank <= :findings_max
ORDER BY
    array_position(array('duplicate_message_id', 'key_order', 'key_not_settled'), check),
    check, topic, partition, offset, `group`
