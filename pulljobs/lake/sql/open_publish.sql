-- Open a bulk publish, or find it in its last state: a publish that is done stays done.
-- Event: none.
-- Parameters: publish_id text, query_id uuid, batch_id bigint (NULL except for a sink), channel_id bigint, only_consumer_id bigint
--   (NULL: all), mode text, guarded bool (its driver holds the lock of guard_publish.sql), driver text (host:pid, or empty).
-- Returns: id, channel_id, only_consumer_id, mode, state, as they are in the ledger.
-- Locks: the row. Index: publish id.
INSERT INTO pulljobs_bulk_publish AS publish (
    publish_id, query_id, batch_id, channel_id, only_consumer_id, mode, guarded, driver, opened_at, touched_at
)
VALUES (
    %(publish_id)s::text,
    %(query_id)s::uuid,
    %(batch_id)s::bigint,
    %(channel_id)s::bigint,
    %(only_consumer_id)s::bigint,
    %(mode)s::text,
    %(guarded)s::bool,
    %(driver)s::text,
    clock_timestamp(),
    clock_timestamp()
)
ON CONFLICT (publish_id) DO UPDATE
SET
    state = CASE publish.state WHEN 'done' THEN 'done' ELSE 'open' END,
    guarded = excluded.guarded,
    driver = excluded.driver,
    touched_at = excluded.touched_at
RETURNING id, channel_id, only_consumer_id, mode, state
