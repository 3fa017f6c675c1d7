-- Count the settlements since a time by consumer.
-- Event: none.
-- Parameters: low, high bigint: bounds of ids, the second exclusive; since timestamptz; cap int: how many are read, newest first.
-- Returns: consumer_id, settled, oldest (time of the first settlement that was read, of all consumers).
-- Locks: none. Index: primary keys of the archive's newest partitions; not more rows are read than those of the time, and than the cap.
WITH newest AS MATERIALIZED (
    SELECT consumer_id, settled_at
    FROM pulljobs_archived_job
    WHERE id >= %(low)s::bigint AND id < %(high)s::bigint
    ORDER BY id DESC
    LIMIT %(cap)s::int
)
SELECT consumer_id, count(*) AS settled, (SELECT min(settled_at) FROM newest) AS oldest
FROM newest
WHERE settled_at >= %(since)s::timestamptz
GROUP BY consumer_id
