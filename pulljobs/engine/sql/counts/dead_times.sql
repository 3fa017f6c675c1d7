-- Find when the first and the last DEAD job (by id) of consumers died.
-- Event: none.
-- Parameters: consumer_ids bigint[].
-- Returns a row for each consumer: consumer_id, oldest, newest (times of the deaths of these two, earlier ones of a redriven job
--   too; NULL: no DEAD job, or none whose death is in the archive).
-- Locks: none. Index: pulljobs_job_dead, archived job_id.
SELECT consumer.id AS consumer_id, died.oldest, died.newest
FROM unnest(%(consumer_ids)s::bigint[]) AS consumer (id)
CROSS JOIN LATERAL (
    SELECT min(archived.settled_at) AS oldest, max(archived.settled_at) AS newest
    FROM pulljobs_archived_job AS archived
    WHERE archived.state = 'DEAD' AND archived.job_id = ANY(ARRAY[
        (
            SELECT id
            FROM pulljobs_job
            WHERE consumer_id = consumer.id AND reason IS NOT NULL
            ORDER BY id
            LIMIT 1
        ),
        (
            SELECT id
            FROM pulljobs_job
            WHERE consumer_id = consumer.id AND reason IS NOT NULL
            ORDER BY id DESC
            LIMIT 1
        )
    ])
) AS died
