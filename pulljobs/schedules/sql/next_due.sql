-- Read how long it takes until the next schedule is due.
-- Event: none; each schedule loop runs it before and after it fires, and every ten seconds while no schedule is due.
-- Parameters: none.
-- Returns one row: seconds (0 or less: a schedule is due; NULL: no schedule will be due).
-- Locks: none. Index: schedule due_at, its first entry.
SELECT extract(epoch FROM min(due_at) - clock_timestamp())::float8 AS seconds
FROM pulljobs_schedule
WHERE due_at IS NOT NULL
