-- Insert records of slots that fired or were skipped. A slot has one record, so that it fires once.
-- Event: none; in the transaction that published the messages.
-- Parameters: schedule_ids bigint[], slots timestamptz[], fire_times timestamptz[], message_ids bigint[], reasons text[], errors text[]
--   (of one length; message NULL: skipped), replaces bool (true: records of skipped slots are overwritten, for a backfill).
-- Returns: schedule_id, slot_at, late_seconds of the rows that were written.
-- Locks: none that others wait for. Index: slot primary key.
INSERT INTO pulljobs_slot AS slot (schedule_id, slot_at, recorded_at, late_seconds, message_id, reason, error)
SELECT
    planned.schedule_id,
    planned.slot_at,
    clock_timestamp(),
    extract(epoch FROM clock_timestamp() - planned.fires_at)::float8,
    planned.message_id,
    planned.reason,
    planned.error
FROM
    unnest(
        %(schedule_ids)s::bigint[],
        %(slots)s::timestamptz[],
        %(fire_times)s::timestamptz[],
        %(message_ids)s::bigint[],
        %(reasons)s::text[],
        %(errors)s::text[]
    ) AS planned (schedule_id, slot_at, fires_at, message_id, reason, error)
ON CONFLICT (schedule_id, slot_at) DO UPDATE
SET
    recorded_at = excluded.recorded_at,
    late_seconds = excluded.late_seconds,
    message_id = excluded.message_id,
    reason = excluded.reason,
    error = excluded.error
WHERE %(replaces)s::bool AND slot.message_id IS NULL
RETURNING schedule_id, slot_at, late_seconds
