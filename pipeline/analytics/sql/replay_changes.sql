-- Computes: the restored messages that are not what they were, up to a bound.
-- Reads: restored
-- Columns: replay_id; origin; topic, partition, offset: of the restored one; change: value, key or
--   value and key; key, original_key; value_bytes, original_bytes
WITH changed AS (
    SELECT
        *,
        NOT value_hash <=> original_hash AS has_value,
        NOT key <=> original_key AS has_key,
        row_number() OVER (PARTITION BY replay_id ORDER BY topic, partition, offset) AS rank
    FROM restored
    WHERE has_original AND NOT (value_hash <=> original_hash AND key <=> original_key)
)
SELECT
    replay_id, origin, topic, partition, offset,
    CASE
        WHEN has_value AND has_key THEN 'value and key'
        WHEN has_key THEN 'key'
        ELSE 'value'
    END AS change,
    key, original_key, value_bytes, original_bytes
FROM changed
WHERE rank <= :findings_max
ORDER BY replay_id, topic, partition, offset
