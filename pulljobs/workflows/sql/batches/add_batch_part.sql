-- Record the ids of published members, and append their number to the counts of the batch.
-- Event: none; in the transaction that published the members, under the lock of lock_batch_to_add.sql.
-- Parameters: batch_id bigint, job_ids bigint[].
-- Returns: nothing.
-- Locks: none.
WITH part AS (
    INSERT INTO pulljobs_batch_part (batch_id, job_ids)
    VALUES (%(batch_id)s::bigint, %(job_ids)s::bigint[])
)
INSERT INTO pulljobs_batch_sum (batch_id, members)
VALUES (%(batch_id)s::bigint, cardinality(%(job_ids)s::bigint[]))
