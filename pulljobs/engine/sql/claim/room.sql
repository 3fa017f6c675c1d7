-- Count how many more jobs of a consumer may be in flight.
-- Event: none; in the transaction of lock_consumer.sql, and a statement of its own, so that it sees all that was claimed before.
-- Parameters: consumer_id bigint.
-- Returns one row: room int8, 0 at the least (NULL: any number); no row: no such consumer.
-- Locks: none. Index: consumer and job primary key. No index for the leases: there are as many as claims in flight; and
--   while a snapshot is held, dead rows of those that ended since, which are read too.
SELECT
    CASE
        WHEN consumer.max_in_flight IS NOT NULL THEN greatest(consumer.max_in_flight - (
            SELECT count(*)
            FROM pulljobs_lease AS lease
            CROSS JOIN unnest(lease.job_ids) AS member (job_id)
            CROSS JOIN LATERAL (
                -- One by one: a join might scan the table.
                SELECT
                FROM pulljobs_job
                WHERE id = member.job_id AND lease_token = lease.lease_token
                LIMIT 1
            ) AS job
            WHERE lease.consumer_id = consumer.id
        ), 0)
    END AS room
FROM pulljobs_consumer AS consumer
WHERE consumer.id = %(consumer_id)s::bigint
