-- Computes: how unevenly messages are spread over keys. Gini: 0 when all keys have as many, near 1
--   when one has nearly all.
-- Reads: subjects
-- Columns: topic; keys; messages: that have a key; without_key; gini; top_share: of the top keys
--   together; busiest_share: of the one with most
WITH keys AS (
    SELECT topic, key_text, count(*) AS messages
    FROM subjects
    WHERE key_text IS NOT NULL
    GROUP BY topic, key_text
),
ranked AS (
    SELECT
        *,
        row_number() OVER (PARTITION BY topic ORDER BY messages, key_text) AS from_least,
        row_number() OVER (PARTITION BY topic ORDER BY messages DESC, key_text) AS from_most
    FROM keys
),
spread AS (
    SELECT
        topic,
        count(*) AS keys,
        sum(messages) AS messages,
        2 * sum(from_least * messages) / (count(*) * sum(messages)) - (count(*) + 1) / count(*)
            AS gini,
        sum(messages) FILTER (WHERE from_most <= :top_keys) / sum(messages) AS top_share,
        max(messages) / sum(messages) AS busiest_share
    FROM ranked
    GROUP BY topic
)
SELECT
    topic,
    coalesce(keys, 0) AS keys,
    coalesce(messages, 0) AS messages,
    without_key,
    gini,
    top_share,
    busiest_share
FROM (SELECT topic, count_if(key_text IS NULL) AS without_key FROM subjects GROUP BY topic)
LEFT JOIN spread USING (topic)
ORDER BY topic
