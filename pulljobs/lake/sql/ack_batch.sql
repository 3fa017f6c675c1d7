-- Mark a batch of a stream as acked. Jobs that were neither acked nor failed are counted as lost. Delete old batches.
-- Event: none; in the transaction of finish.sql, which settled its jobs.
-- Parameters: batch_id bigint, acked int, kept bigint (number of the last batches to keep).
-- Returns: jobs, acked, failed, lost.
-- Locks: the batch, the stream, the lease. Index: primary keys, stream batch, lease lease_token.
WITH batch AS (
    UPDATE pulljobs_stream_batch
    SET
        state = 'acked',
        job_ids = '{}',
        acked = acked + %(acked)s::int,
        lost = greatest(jobs - failed - acked - %(acked)s::int, 0),
        acked_at = clock_timestamp()
    WHERE id = %(batch_id)s::bigint
    RETURNING *
),
counted AS (
    UPDATE pulljobs_stream AS stream
    SET
        acked = stream.acked + batch.acked,
        failed = stream.failed + batch.failed,
        lost = stream.lost + batch.lost
    FROM batch
    WHERE stream.id = batch.stream_id
),
ended AS (
    DELETE FROM pulljobs_lease AS lease
    USING batch
    WHERE lease.lease_token = batch.lease_token
),
forgotten AS (
    DELETE FROM pulljobs_stream_batch AS old
    USING batch
    WHERE old.stream_id = batch.stream_id AND old.seq <= batch.seq - %(kept)s::bigint AND old.state = 'acked'
)
SELECT jobs, acked, failed, lost
FROM batch
