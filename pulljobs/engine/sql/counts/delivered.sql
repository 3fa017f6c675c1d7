-- Count recent deliveries by consumer.
-- Event: none.
-- Parameters: settlements int: how many of the newest are looked at.
-- Returns: consumer_id (NULL: all settlements that were read), jobs, oldest, newest.
-- Locks: none. Index: primary keys of the archive's newest partitions.
WITH newest AS MATERIALIZED (
    SELECT consumer_id, state, settled_at
    FROM pulljobs_archived_job
    ORDER BY id DESC
    LIMIT %(settlements)s::int
)
SELECT consumer_id, count(*) AS jobs, min(settled_at) AS oldest, max(settled_at) AS newest
FROM newest
WHERE state = 'DELIVERED'
GROUP BY consumer_id
UNION ALL
SELECT NULL, count(*), min(settled_at), max(settled_at)
FROM newest
