-- Lock keys of an exclusive consumer for a claim: up to `wanted` that seem free, and those that are busy.
-- Event: none; a statement before claim_keyed.sql, which then sees what was committed before the lock.
-- Parameters: consumer_id bigint, keys text[] (in the order of a claim, each once), job_ids bigint[] (met by it), wanted int.
-- Returns: key.
-- Locks: the key rows, skipping rows that other transactions have locked. Index: exclusive key, job primary key.
WITH asked AS MATERIALIZED (
    SELECT key
    FROM unnest(%(keys)s::text[]) AS row (key)
),
free AS MATERIALIZED (
    SELECT locked.key
    FROM asked
    CROSS JOIN LATERAL (
        SELECT key
        FROM pulljobs_exclusive_key
        WHERE consumer_id = %(consumer_id)s::bigint
            AND key = asked.key
            AND (
                holder IS NULL
                OR (holder IN (SELECT unnest(%(job_ids)s::bigint[]))) IS TRUE
                OR NOT EXISTS (SELECT FROM pulljobs_job WHERE id = holder AND reason IS NULL)
            )
        FOR UPDATE SKIP LOCKED
    ) AS locked
    LIMIT %(wanted)s::int
),
busy AS MATERIALIZED (
    SELECT locked.key
    FROM asked
    CROSS JOIN LATERAL (
        SELECT key
        FROM pulljobs_exclusive_key
        WHERE consumer_id = %(consumer_id)s::bigint
            AND key = asked.key
            AND holder IS NOT NULL
            AND (holder IN (SELECT unnest(%(job_ids)s::bigint[]))) IS NOT TRUE
            AND EXISTS (SELECT FROM pulljobs_job WHERE id = holder AND reason IS NULL)
        FOR UPDATE SKIP LOCKED
    ) AS locked
)
SELECT key FROM free
UNION ALL
SELECT key FROM busy
