-- Register that a process waits for jobs of these consumers, and how many HTTP pulls wait in it.
-- Event: none; committed before the claim that follows it.
-- Parameters: consumer_ids bigint[], pulls int[] (of one length), node_id uuid, patience interval.
-- Returns: consumer_id, elsewhere (pulls that wait in other processes; those that register at this moment are not seen).
-- Locks: the node's own rows, skipping those that are locked: polls replace wake-ups meanwhile. Index: waiter primary key.
WITH waiting AS MATERIALIZED (
    SELECT *
    FROM unnest(%(consumer_ids)s::bigint[], %(pulls)s::int[]) AS row (consumer_id, pulls)
),
free AS MATERIALIZED (
    SELECT consumer_id
    FROM pulljobs_pull_waiter
    WHERE node_id = %(node_id)s::uuid AND consumer_id = ANY(%(consumer_ids)s::bigint[])
    FOR NO KEY UPDATE SKIP LOCKED
),
renewed AS (
    UPDATE pulljobs_pull_waiter AS own
    SET waiting = waiting.pulls, waiting_until = clock_timestamp() + %(patience)s::interval
    FROM free
    JOIN waiting ON waiting.consumer_id = free.consumer_id
    WHERE own.consumer_id = free.consumer_id AND own.node_id = %(node_id)s::uuid
),
registered AS (
    INSERT INTO pulljobs_pull_waiter (consumer_id, node_id, waiting, waiting_until)
    SELECT consumer_id, %(node_id)s::uuid, pulls, clock_timestamp() + %(patience)s::interval
    FROM waiting
    WHERE consumer_id NOT IN (SELECT consumer_id FROM free)
    ON CONFLICT (consumer_id, node_id) DO NOTHING
)
SELECT waiting.consumer_id, coalesce(sum(other.waiting), 0)::int AS elsewhere
FROM waiting
LEFT JOIN pulljobs_pull_waiter AS other
    ON other.consumer_id = waiting.consumer_id
    AND other.node_id <> %(node_id)s::uuid
    AND other.waiting_until > clock_timestamp()
GROUP BY waiting.consumer_id
