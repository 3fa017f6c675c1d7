-- Forget under which request id a claim was made, before it goes back: no repeat is told of it any more.
-- Event: none.
-- Parameters: lease_token uuid.
-- Returns: lease_id; no row: a repeat was told of it already (requested.sql), or it is over.
-- Locks: the lease row. Index: lease lease_token.
UPDATE pulljobs_lease
SET request_id = NULL
WHERE lease_token = %(lease_token)s::uuid AND request_id IS NOT NULL AND running_ids IS NULL
RETURNING id AS lease_id
