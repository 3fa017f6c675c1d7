-- Delete a batch of records of slots that are older than an age, the oldest first. The age of a record that a backfill wrote counts
--   from the backfill on.
-- Event: none; upkeep.
-- Parameters: age interval, wanted int (number of rows at most).
-- Returns: one row for each deleted record.
-- Locks: the records. Index: slot slot_at.
DELETE FROM pulljobs_slot
WHERE
    ctid = ANY(ARRAY(
        SELECT ctid
        FROM pulljobs_slot
        WHERE slot_at < statement_timestamp() - %(age)s::interval
            AND recorded_at < statement_timestamp() - %(age)s::interval
        ORDER BY slot_at
        LIMIT %(wanted)s::int
        FOR UPDATE SKIP LOCKED
    ))
RETURNING schedule_id
