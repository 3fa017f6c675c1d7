-- Lock keys without a holder and without a claimable job: idle keys, and keys whose freeing process crashed.
-- Event: none; for the sweep. free_keys.sql follows in the same transaction.
-- Parameters: wanted int (rows at most).
-- Returns: consumer_id, key. Without keys that free_keys.sql would not change: those whose jobs are all delayed.
-- Locks: the key rows, skipping those that other transactions have locked. Index: job primary key, pulljobs_job_key; the keys that have jobs are all read.
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
                    -- IS NULL, in a form that cannot use the claim index.
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
