-- Computes: what each replay put into the topic, and where that differs from what it was made of.
-- Reads: restored
-- Columns: replay_id; messages: restored; keys; originals: how many different ones; repeated:
--   restored more than once; changed: with another value; rekeyed: with another key; unknown: whose
--   original is not among the messages; first_at, last_at: when they were restored
SELECT
    replay_id,
    count(*) AS messages,
    count(DISTINCT key) AS keys,
    count(DISTINCT origin) AS originals,
    count(*) - count(DISTINCT origin) AS repeated,
    count_if(has_original AND NOT value_hash <=> original_hash) AS changed,
    count_if(has_original AND NOT key <=> original_key) AS rekeyed,
    count_if(NOT has_original) AS unknown,
    timestamp_millis(min(published_ms)) AS first_at,
    timestamp_millis(max(published_ms)) AS last_at
FROM restored
GROUP BY replay_id
ORDER BY replay_id
