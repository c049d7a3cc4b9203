-- Computes: one row for each message that is stored, or of which events tell that it was.
-- Reads: messages, events
-- Columns: topic, partition, offset; published_ms: log time; due_ms: when it could be delivered
--   first, later than that for a delayed message; deliver_at_ms: what a delayed one asked for;
--   lane; key; message_id: the producer's; value_bytes; value_hash; replay_id, replay_origin: of a
--   restored message; withdrawn_ms, withdrawn_index: expired or cancelled; is_stored: it is in
--   `messages`; key_text: the key as text, or as hex
WITH told AS (
    SELECT
        topic, partition, offset,
        min(timestamp) FILTER (WHERE event_type = 'PUBLISHED') AS published_at,
        first(lane, true) AS lane,
        first(key, true) AS key,
        first(message_id, true) AS message_id,
        first(attributes['deliver_at_ms'], true) FILTER (WHERE event_type = 'DELAYED')
            AS deliver_at_ms,
        min(index) FILTER (WHERE event_type IN ('EXPIRED', 'CANCELLED')) AS withdrawn_index,
        min(timestamp) FILTER (WHERE event_type IN ('EXPIRED', 'CANCELLED')) AS withdrawn_at
    FROM events
    GROUP BY topic, partition, offset
),
stored AS (
    SELECT
        topic, partition, offset, timestamp, lane, key, message_id, deliver_at,
        length(value) AS value_bytes,
        sha2(value, 256) AS value_hash,
        get(filter(headers, header -> header.key = :replay_id_header), 0).value AS replay_id,
        get(filter(headers, header -> header.key = :replay_origin_header), 0).value
            AS replay_origin
    FROM messages
),
joined AS (
    SELECT
        topic, partition, offset,
        unix_millis(coalesce(stored.timestamp, told.published_at)) AS published_ms,
        coalesce(
            unix_millis(stored.deliver_at), CAST(told.deliver_at_ms AS BIGINT)
        ) AS deliver_at_ms,
        coalesce(stored.lane, told.lane) AS lane,
        coalesce(stored.key, told.key) AS key,
        coalesce(stored.message_id, told.message_id) AS message_id,
        value_bytes,
        value_hash,
        CAST(replay_id AS STRING) AS replay_id,
        CAST(replay_origin AS STRING) AS replay_origin,
        told.withdrawn_index,
        unix_millis(told.withdrawn_at) AS withdrawn_ms,
        stored.timestamp IS NOT NULL AS is_stored
    FROM stored FULL OUTER JOIN told USING (topic, partition, offset)
)
SELECT
    *,
    greatest(published_ms, deliver_at_ms) AS due_ms,
    coalesce(try_validate_utf8(CAST(key AS STRING)), concat('0x', hex(key))) AS key_text
FROM joined
