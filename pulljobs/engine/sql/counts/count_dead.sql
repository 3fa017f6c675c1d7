-- Count the dead jobs of consumers.
-- Event: none.
-- Parameters: consumer_ids bigint[], cap int: no count goes above it.
-- Returns a row for each: consumer_id, dead (int8).
-- Locks: none. Index: pulljobs_job_dead alone, where VACUUM came by; for each consumer no more entries are read than the cap.
SELECT
    consumer.id AS consumer_id,
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM pulljobs_job
            WHERE consumer_id = consumer.id AND reason IS NOT NULL
            ORDER BY id
            LIMIT %(cap)s::int
        ) AS job
    ) AS dead
FROM unnest(%(consumer_ids)s::bigint[]) AS consumer (id)
