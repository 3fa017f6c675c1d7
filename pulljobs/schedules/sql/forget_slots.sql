-- Delete a batch of records of slots that are too old, the oldest first. Records of a backfill count from the backfill on.
-- Event: none; upkeep.
-- Parameters: age interval, wanted int.
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
