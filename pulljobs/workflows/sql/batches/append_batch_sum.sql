-- Append a change of the counts of a batch. Zeros only note that a process has to look at it.
-- Event: none; in the transaction of the change.
-- Parameters: batch_id bigint, members, delivered, dead, redriven int.
-- Returns: nothing.
-- Locks: none.
INSERT INTO pulljobs_batch_sum (batch_id, members, delivered, dead, redriven)
VALUES (%(batch_id)s::bigint, %(members)s::int, %(delivered)s::int, %(dead)s::int, %(redriven)s::int)
