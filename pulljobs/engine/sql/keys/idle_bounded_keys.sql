-- Forget bounded keys without jobs.
-- Event: none; for the sweep.
-- Parameters: wanted int (rows at most).
-- Returns: consumer_id of each.
-- Locks: the key rows, skipping those of publishers. Index: bounded key, pulljobs_job_key.
WITH idle AS MATERIALIZED (
    SELECT consumer_id, key
    FROM pulljobs_bounded_key AS row
    WHERE NOT EXISTS (
        SELECT
        FROM pulljobs_job
        WHERE consumer_id = row.consumer_id AND key = row.key AND reason IS NULL
    )
    LIMIT %(wanted)s::int
    FOR UPDATE SKIP LOCKED
)
DELETE FROM pulljobs_bounded_key AS row
USING idle
WHERE row.consumer_id = idle.consumer_id AND row.key = idle.key
RETURNING row.consumer_id
