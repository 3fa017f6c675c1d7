-- Say that a process waits for jobs of these consumers.
-- Event: none; committed before the claim that follows it.
-- Parameters: consumer_ids bigint[], node_id uuid, patience interval.
-- Returns: nothing.
-- Locks: the node's own rows. Index: waiter primary key.
INSERT INTO pulljobs_pull_waiter (consumer_id, node_id, waiting_until)
SELECT consumer_id, %(node_id)s::uuid, clock_timestamp() + %(patience)s::interval
FROM unnest(%(consumer_ids)s::bigint[]) AS row (consumer_id)
ON CONFLICT (consumer_id, node_id) DO UPDATE
SET waiting_until = excluded.waiting_until
