-- Move schedules to their next slots, or put off those whose publish was refused.
-- Event: none; the rows are locked by due_schedules.sql in this transaction.
-- Parameters: ids bigint[], next_slots timestamptz[], due_ats timestamptz[], last_slots timestamptz[] (NULL: none was recorded),
--   last_reasons text[], late_seconds float8[], last_message_ids bigint[] (NULL: none was fired), failures int[], errors text[],
--   keep_pauses bool[] (true: slots of the pause have no record yet). All arrays have one length.
-- Returns: nothing.
-- Locks: none but those of due_schedules.sql. Index: schedule primary key.
UPDATE pulljobs_schedule AS schedule
SET
    next_slot = moved.next_slot,
    due_at = moved.due_at,
    last_slot = coalesce(moved.last_slot, schedule.last_slot),
    last_reason = coalesce(moved.last_reason, schedule.last_reason),
    last_late_seconds = coalesce(moved.late_seconds, schedule.last_late_seconds),
    last_message_id = coalesce(moved.last_message_id, schedule.last_message_id),
    failures = moved.failures,
    error = moved.error,
    paused_at = CASE WHEN moved.keeps_pause THEN schedule.paused_at END,
    paused_until = CASE WHEN moved.keeps_pause THEN schedule.paused_until END,
    earlier_pauses = CASE WHEN moved.keeps_pause THEN schedule.earlier_pauses END
FROM
    unnest(
        %(ids)s::bigint[],
        %(next_slots)s::timestamptz[],
        %(due_ats)s::timestamptz[],
        %(last_slots)s::timestamptz[],
        %(last_reasons)s::text[],
        %(late_seconds)s::float8[],
        %(last_message_ids)s::bigint[],
        %(failures)s::int[],
        %(errors)s::text[],
        %(keep_pauses)s::bool[]
    ) AS moved (
        id,
        next_slot,
        due_at,
        last_slot,
        last_reason,
        late_seconds,
        last_message_id,
        failures,
        error,
        keeps_pause
    )
WHERE schedule.id = moved.id
