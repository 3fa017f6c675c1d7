-- Delete clients over HTTP of these consumers beyond the newest ones of each, and those that were not seen for long.
-- Event: none.
-- Parameters: consumer_ids bigint[]; most int: clients of a consumer that stay; age interval.
-- Returns: nothing.
-- Locks: the deleted rows. Those that another transaction has locked stay. Index: unique on consumer_id, name; primary key.
DELETE FROM pulljobs_http_client
WHERE id = ANY(ARRAY(
    SELECT id
    FROM pulljobs_http_client
    WHERE id = ANY(ARRAY(
        SELECT id
        FROM (
            SELECT id, seen_at, row_number() OVER (PARTITION BY consumer_id ORDER BY seen_at DESC, id DESC) AS position
            FROM pulljobs_http_client
            WHERE consumer_id = ANY(%(consumer_ids)s::bigint[])
        ) AS ranked
        WHERE position > %(most)s::int
            OR seen_at < clock_timestamp() - %(age)s::interval
    ))
    FOR UPDATE SKIP LOCKED
))
