-- Lock schedules that are due, the longest due first, and read their rules and messages.
-- Event: none; the transaction publishes, records the slots and moves the rows.
-- Parameters: wanted int.
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
-- The start of the statement is a stable value, which an index can be searched for.
WHERE due_at <= statement_timestamp()
ORDER BY due_at
LIMIT %(wanted)s::int
FOR NO KEY UPDATE SKIP LOCKED
