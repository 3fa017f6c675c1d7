-- Record the jobs of a claim as the next batch of a stream.
-- Event: none; in the transaction of claim.sql or claim_keyed.sql.
-- Parameters: stream_id bigint, seq bigint, lease_token uuid.
-- Returns: batch_id; no row: the stream has such a batch already.
-- Locks: none. Index: stream batch, lease lease_token.
INSERT INTO pulljobs_stream_batch (stream_id, seq, state, lease_token, job_ids, jobs, claimed_at)
SELECT
    %(stream_id)s::bigint,
    %(seq)s::bigint,
    'open',
    lease.lease_token,
    lease.job_ids,
    cardinality(lease.job_ids),
    lease.claimed_at
FROM pulljobs_lease AS lease
WHERE lease.lease_token = %(lease_token)s::uuid
ON CONFLICT (stream_id, seq) DO NOTHING
RETURNING id AS batch_id
