-- Forget under which request id a claim was made, before it goes back: no repeat is told of it any more.
-- Event: none.
-- Parameters: token uuid.
-- Returns: lease_id; no row: a repeat was told of it already (requested.sql), or it is over.
-- Locks: the lease row. Index: lease token.
UPDATE pulljobs_lease
SET request_id = NULL
WHERE token = %(token)s::uuid AND request_id IS NOT NULL AND running_ids IS NULL
RETURNING id AS lease_id
