-- Record a heartbeat of a stream's owner, and renew the leases of its batches from now.
-- Event: renew. Each lease is renewed as a whole: a stream is not notified of single lost jobs. It does not count
--   as a renewal of the lease, which would be an attempt to store for every job of the batch.
-- Parameters: stream_id bigint, node_id uuid, patience interval (NULL: give up the stream), lease_duration interval, renewed boolean
--   (renew the leases, too), report jsonb (status of the process).
-- Returns one row: owned boolean (False: another owner took the stream over, and nothing was written), kept int8 (live leases).
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
