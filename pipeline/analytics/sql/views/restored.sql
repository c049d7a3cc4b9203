-- Computes: each restored message beside its original, by the header that names it.
-- Reads: subjects
-- Columns: replay_id; topic, partition, offset: of the restored one; origin: topic:partition:offset
--   of the original; key, value_bytes, value_hash, published_ms; original_key, original_bytes,
--   original_hash, original_ms: null where the original is not among the messages; has_original
SELECT
    again.replay_id,
    again.topic, again.partition, again.offset,
    again.replay_origin AS origin,
    again.key_text AS key, again.value_bytes, again.value_hash, again.published_ms,
    original.key_text AS original_key,
    original.value_bytes AS original_bytes,
    original.value_hash AS original_hash,
    original.published_ms AS original_ms,
    original.offset IS NOT NULL AS has_original
FROM subjects AS again
LEFT JOIN subjects AS original
    ON again.replay_origin = concat(original.topic, ':', original.partition, ':', original.offset)
    AND original.is_stored
WHERE again.replay_id IS NOT NULL
