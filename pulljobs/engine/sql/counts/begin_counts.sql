-- Add the row of the progress, so that the first count can lock it.
-- Event: none.
-- Parameters: none.
-- Returns: nothing.
-- Locks: the new row. Index: primary key.
INSERT INTO pulljobs_count_progress (id, counted_at, open_from, counted_from, newest_dead)
VALUES (1, 'epoch', 'epoch', 'epoch', 0)
ON CONFLICT DO NOTHING
