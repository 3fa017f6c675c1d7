-- Lock keys that nobody holds and no job that may be claimed stands for: their row is idle, or whoever freed them died at it.
-- Event: none; for the sweep. free_keys.sql follows in the same transaction.
-- Parameters: wanted int, at the most.
-- Returns: consumer_id, key. Not of those that free_keys.sql would leave as they are: whose jobs are all due later.
-- Locks: the key rows, skipping what others hold. Index: job primary key, pulljobs_job_key; the keys that have jobs are all read.
SELECT row.consumer_id, row.key
FROM pulljobs_exclusive_key AS row
JOIN pulljobs_consumer AS consumer ON consumer.id = row.consumer_id
WHERE (
    row.holder IS NULL
    OR NOT consumer.exclusive_keys
    OR NOT EXISTS (SELECT FROM pulljobs_job WHERE id = row.holder AND reason IS NULL)
)
    AND (
        NOT EXISTS (
            SELECT
            FROM pulljobs_job
            WHERE consumer_id = row.consumer_id AND key = row.key AND reason IS NULL
        )
        OR (
            EXISTS (
                SELECT
                FROM pulljobs_job
                WHERE consumer_id = row.consumer_id
                    AND key = row.key
                    AND reason IS NULL
                    -- Is NULL, in words that the claim index has no use for.
                    AND (available_at <= 'infinity') IS NOT TRUE
                    AND state = 'QUEUED'
            )
            AND (
                NOT consumer.exclusive_keys
                OR NOT EXISTS (
                    SELECT
                    FROM pulljobs_job
                    WHERE consumer_id = row.consumer_id
                        AND key = row.key
                        AND reason IS NULL
                        AND available_at <= clock_timestamp()
                        AND state = 'QUEUED'
                )
            )
        )
    )
LIMIT %(wanted)s::int
FOR UPDATE OF row SKIP LOCKED
