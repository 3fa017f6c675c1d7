-- Become the owner of a stream that has no live owner; its row is created if it is missing.
-- Event: none.
-- Parameters: stream text, consumer_id bigint, node_id uuid, name text (of the process), patience interval (without a heartbeat the
--   stream is free afterwards).
-- Returns: stream_id; no row: another process owns it, or it belongs to another consumer (see stream_owner.sql).
-- Locks: the stream, waiting for it. Index: stream name.
WITH owned AS (
    INSERT INTO pulljobs_stream AS stream (name, consumer_id, owner, owned_until)
    VALUES (
        %(stream)s::text,
        %(consumer_id)s::bigint,
        %(node_id)s::uuid,
        clock_timestamp() + %(patience)s::interval
    )
    ON CONFLICT (name) DO UPDATE
    SET owner = excluded.owner, owned_until = excluded.owned_until
    WHERE stream.consumer_id = excluded.consumer_id
        AND (stream.owner IS NOT DISTINCT FROM excluded.owner OR coalesce(stream.owned_until < clock_timestamp(), true))
    RETURNING id
),
node AS (
    INSERT INTO pulljobs_node (id, name, kind, started_at, heartbeat_at)
    SELECT %(node_id)s::uuid, %(name)s::text, 'spark', clock_timestamp(), clock_timestamp()
    FROM owned
    ON CONFLICT (id) DO UPDATE
    SET heartbeat_at = excluded.heartbeat_at, stopped_at = NULL
)
SELECT id AS stream_id
FROM owned
