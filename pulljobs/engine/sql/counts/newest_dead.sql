-- Read the newest dead jobs of consumers, with the beginning of their errors.
-- Event: none.
-- Parameters: consumer_ids bigint[], wanted int (jobs of each consumer at most).
-- Returns: consumer_id, id, reason, error (its first 500 characters, NULL: none).
-- Locks: none. Index: pulljobs_job_dead, backwards; not more rows are read than are returned.
SELECT consumer.id AS consumer_id, job.*
FROM unnest(%(consumer_ids)s::bigint[]) AS consumer (id)
CROSS JOIN LATERAL (
    SELECT id, reason, left(error, 500) AS error
    FROM pulljobs_job
    WHERE consumer_id = consumer.id AND reason IS NOT NULL
    ORDER BY id DESC
    LIMIT %(wanted)s::int
) AS job
