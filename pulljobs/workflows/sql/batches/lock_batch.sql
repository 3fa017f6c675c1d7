-- Lock a batch for its decision, unless a publisher adds members or another process has it locked.
-- Event: none.
-- Parameters: batch_id bigint.
-- Returns: id of the batch. No row: it is locked, or there is no such batch.
-- Locks: the batch, FOR UPDATE SKIP LOCKED. Index: primary key.
SELECT id
FROM pulljobs_batch
WHERE id = %(batch_id)s::bigint
FOR UPDATE SKIP LOCKED
