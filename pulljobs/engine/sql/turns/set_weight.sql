-- Set how many jobs a key of a consumer gives in a turn.
-- Event: none.
-- Parameters: consumer_id bigint, key text, weight int.
-- Returns: nothing.
-- Locks: the key's row, which is made if it is missing; waiting for claims. Index: flow key.
INSERT INTO pulljobs_flow_key AS row (consumer_id, key, weight)
VALUES (%(consumer_id)s::bigint, %(key)s::text, %(weight)s::int)
ON CONFLICT (consumer_id, key) DO UPDATE
SET weight = excluded.weight, writer = pg_current_xact_id()
