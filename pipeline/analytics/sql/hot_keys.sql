-- Computes: the keys with most messages.
-- Reads: subjects
-- Columns: rank; key; messages; share: of the messages that have a key; cumulative_share: of this
--   key and those above it; value_bytes; partitions: how many it is in
WITH keys AS (
    SELECT
        key_text AS key,
        count(*) AS messages,
        sum(value_bytes) AS value_bytes,
        count(DISTINCT topic, partition) AS partitions
    FROM subjects
    WHERE key_text IS NOT NULL
    GROUP BY key_text
),
ranked AS (
    SELECT
        row_number() OVER by_size AS rank,
        key,
        messages,
        messages / sum(messages) OVER () AS share,
        sum(messages) OVER by_size / sum(messages) OVER () AS cumulative_share,
        value_bytes,
        partitions
    FROM keys
    WINDOW by_size AS (ORDER BY messages DESC, key)
)
SELECT * FROM ranked WHERE rank <= :top_keys ORDER BY rank
