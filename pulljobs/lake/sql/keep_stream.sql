-- Say that the owner of a stream lives, and give its batches' leases a full new length from now.
-- Event: renew. The whole of a lease at once, whatever of it is settled: a stream has nobody to tell of single jobs. Not counted
--   among the lease's renewals, for that would be an attempt to remember for every job of the batch.
-- Parameters: stream_id bigint, node_id uuid, patience interval (NULL: let others have the stream), lease_duration interval, renewed boolean
--   (the leases, too), report jsonb (what the process says of itself).
-- Returns one row: owned boolean (else somebody took the stream over, and nothing was written), kept int8 (leases that are alive).
-- Locks: the stream, the leases. Index: primary keys, stream batch, lease lease_token.
WITH owned AS (
    UPDATE pulljobs_stream
    SET owned_until = clock_timestamp() + coalesce(%(patience)s::interval, interval '0')
    WHERE id = %(stream_id)s::bigint AND owner = %(node_id)s::uuid
    RETURNING id
),
lease AS MATERIALIZED (
    SELECT lease.id
    FROM owned
    JOIN pulljobs_stream_batch AS batch ON batch.stream_id = owned.id AND batch.state = 'open'
    JOIN pulljobs_lease AS lease ON lease.lease_token = batch.lease_token
    WHERE %(renewed)s::boolean AND lease.hard_end > clock_timestamp()
    ORDER BY lease.id
    FOR UPDATE OF lease SKIP LOCKED
),
renewed AS (
    UPDATE pulljobs_lease
    SET leased_until = least(hard_end, greatest(leased_until, clock_timestamp() + %(lease_duration)s::interval))
    WHERE id IN (SELECT id FROM lease)
    RETURNING id
),
node AS (
    UPDATE pulljobs_node
    SET
        heartbeat_at = clock_timestamp(),
        stopped_at = CASE WHEN %(patience)s::interval IS NULL THEN clock_timestamp() END,
        report = %(report)s::jsonb
    WHERE id = %(node_id)s::uuid AND EXISTS (SELECT FROM owned)
)
SELECT EXISTS (SELECT FROM owned) AS owned, (SELECT count(*) FROM renewed) AS kept
