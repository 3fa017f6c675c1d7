-- Clear the request id of a claim before it is given back, so that no repeated request gets the claim.
-- Event: none.
-- Parameters: lease_token uuid.
-- Returns: lease_id; no row: a repeated request got the claim already (requested.sql), or the lease has ended.
-- Locks: the lease row. Index: lease lease_token.
UPDATE pulljobs_lease
SET request_id = NULL
WHERE lease_token = %(lease_token)s::uuid AND request_id IS NOT NULL AND running_ids IS NULL
RETURNING id AS lease_id
