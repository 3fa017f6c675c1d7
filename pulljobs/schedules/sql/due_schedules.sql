-- Lock schedules that are due, the longest due first, and read their rules and messages.
-- Event: none; the transaction then publishes, runs record_slots.sql and moves the rows by move_schedules.sql.
-- Parameters: wanted int (number of rows at most).
-- Returns: the rule, the message and the state of each schedule, and now (the database's clock).
-- Locks: the rows, skipping those of other processes. Index: schedule due_at, from its first entry to now.
SELECT
    id,
    name,
    channel_name,
    cron,
    every,
    timezone,
    starts_at,
    ends_at,
    jitter,
    payload,
    content_type,
    headers,
    key,
    priority,
    cost,
    producer_id,
    missed,
    missed_bound,
    misfire_grace,
    overlap,
    paused_at,
    paused_until,
    earlier_pauses,
    next_slot,
    last_message_id,
    failures,
    error,
    clock_timestamp() AS now
FROM pulljobs_schedule
-- statement_timestamp() is stable, so that the index is searched for it. clock_timestamp() is volatile.
WHERE due_at <= statement_timestamp()
ORDER BY due_at
LIMIT %(wanted)s::int
FOR NO KEY UPDATE SKIP LOCKED
