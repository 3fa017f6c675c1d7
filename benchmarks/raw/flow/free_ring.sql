-- Return the keys of ended jobs to the ring if they had left it for lack of a slot. It is a statement after the finish.
-- Every row is written, full or not: else a claim that still sees the ended job could mark the key as full afterwards.
UPDATE raw_flow_key
SET
    turn_at = CASE WHEN is_full THEN clock_timestamp() ELSE turn_at END,
    is_full = false,
    writer = pg_current_xact_id()
WHERE consumer_id = %(consumer_id)s::bigint AND key = ANY(%(keys)s::text[])
