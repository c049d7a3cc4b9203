-- Computes: how evenly messages, bytes and keys are spread over partitions.
-- Reads: subjects
-- Columns: topic; partition; messages; value_bytes; keys; share: of the topic's messages;
--   skew: messages, by the mean of the topic's partitions that have any; 1 is even
SELECT
    topic,
    partition,
    count(*) AS messages,
    coalesce(sum(value_bytes), 0) AS value_bytes,
    count(DISTINCT key_text) AS keys,
    count(*) / sum(count(*)) OVER (PARTITION BY topic) AS share,
    count(*) / avg(count(*)) OVER (PARTITION BY topic) AS skew
FROM subjects
GROUP BY topic, partition
ORDER BY messages DESC, topic, partition
