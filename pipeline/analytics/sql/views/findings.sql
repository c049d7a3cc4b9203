-- Computes: everything that the audit found, one row each.
-- Reads: subjects, deliveries, outcomes, bounds
-- Columns: check; topic; partition; offset; group; key; count: messages that it is about; detail
WITH stored AS (
    SELECT topic, partition, offset, count(*) AS copies
    FROM subjects
    WHERE is_stored
    GROUP BY topic, partition, offset
),
neighbours AS (
    SELECT
        bounds.*, offset, copies,
        coalesce(lag(offset) OVER in_order, first_offset - 1) AS before,
        lead(offset) OVER in_order AS following
    FROM bounds LEFT JOIN stored USING (topic, partition)
    WINDOW in_order AS (PARTITION BY topic, partition ORDER BY offset)
),
-- Up to three findings of a message: a hole before it, one after the last, its offset taken twice.
-- A partition without any message has one row, without an offset.
offsets AS (
    SELECT topic, partition, found.*
    FROM neighbours
    LATERAL VIEW explode(array(
        named_struct(
            'check', 'offset_gap', 'offset', before + 1,
            'count', CASE WHEN NOT is_compacted THEN coalesce(offset, end_offset) - before - 1 END
        ),
        named_struct(
            'check', 'offset_gap', 'offset', offset + 1,
            'count',
            CASE WHEN NOT is_compacted AND following IS NULL THEN end_offset - offset - 1 END
        ),
        named_struct('check', 'duplicate_offset', 'offset', offset, 'count', nullif(copies, 1))
    )) AS found
    WHERE found.count > 0
),
ids AS (
    SELECT
        topic,
        message_id,
        min_by(partition, published_ms) AS partition,
        min_by(offset, published_ms) AS offset,
        min(key_text) AS key,
        count(*) AS count,
        array_sort(collect_set(concat(partition, ':', offset))) AS places,
        max(published_ms) - min(published_ms) AS within_ms
    FROM subjects
    WHERE message_id IS NOT NULL AND is_stored
    GROUP BY topic, message_id
    HAVING count(*) > 1
),
-- The first deliveries of each key's messages. A delayed message takes its turn once it is due, and
-- may come after later ones.
in_key AS (
    SELECT
        *,
        max(offset) OVER before AS overtaker,
        max_by(offset, coalesce(done_index, 4611686018427387904)) OVER before AS unfinished,
        max(coalesce(done_index, 4611686018427387904)) OVER before AS unfinished_until
    FROM outcomes
    WHERE key IS NOT NULL AND delivered_index IS NOT NULL
    WINDOW before AS (
        PARTITION BY topic, partition, `group`, key
        ORDER BY delivered_index, offset
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
),
keys AS (
    SELECT topic, partition, offset, `group`, key, found.*
    FROM in_key
    LATERAL VIEW explode(array(
        CASE WHEN offset < overtaker AND deliver_at_ms IS NULL THEN named_struct(
            'check', 'key_order',
            'detail', concat('delivered after offset ', overtaker, ' of its key')
        ) END,
        CASE WHEN delivered_index < unfinished_until THEN named_struct(
            'check', 'key_not_settled',
            'detail', concat('delivered before offset ', unfinished, ' of its key was settled')
        ) END
    )) AS found
    WHERE found IS NOT NULL
),
leases AS (
    SELECT topic, partition, offset, `group`, key, found.*
    FROM deliveries
    LATERAL VIEW explode(array(
        CASE WHEN after = 'DELIVERED' THEN named_struct(
            'check', 'delivered_while_leased',
            'detail', concat('delivery ', number, ' began while the one before stood')
        ) END,
        CASE WHEN after IN ('ACKNOWLEDGED', 'DEAD_LETTERED', 'SKIPPED', 'PURGED') THEN named_struct(
            'check', 'delivered_when_done',
            'detail', concat('delivery ', number, ' came after ', after)
        ) END,
        CASE WHEN delivered_ms < deliver_at_ms THEN named_struct(
            'check', 'delivered_early',
            'detail', concat('delivered ', deliver_at_ms - delivered_ms, ' ms before its time')
        ) END
    )) AS found
    WHERE found IS NOT NULL
)
SELECT
    check, topic, partition, offset,
    CAST(NULL AS STRING) AS `group`, CAST(NULL AS STRING) AS key, count,
    CASE check
        WHEN 'offset_gap' THEN concat('no message at offsets ', offset, ' to ', offset + count - 1)
        ELSE concat(count, ' messages at one offset')
    END AS detail
FROM offsets
UNION ALL
SELECT
    'duplicate_message_id', topic, partition, offset, NULL, key, count,
    concat(message_id, ' at ', array_join(places, ', '), ' within ', within_ms, ' ms')
FROM ids
UNION ALL
SELECT check, topic, partition, offset, `group`, key, 1, detail
FROM leases
UNION ALL
SELECT check, topic, partition, offset, `group`, key, 1, detail
FROM keys
