-- End the throttles of all keys of a consumer.
-- Event: none.
-- Parameters: consumer_id bigint.
-- Returns: nothing.
-- Locks: the rows of throttled keys, in order, waiting for claims. Index: flow key; all keys of the consumer are read.
WITH ${clock_after_id},
locked AS MATERIALIZED (
    SELECT key
    FROM pulljobs_flow_key
    WHERE consumer_id = %(consumer_id)s::bigint AND throttled_until > (SELECT now FROM clock)
    ORDER BY key
    FOR NO KEY UPDATE
)
UPDATE pulljobs_flow_key AS row
SET
    throttled_until = NULL,
    -- If the key waits for a token as well, the next claim sets its turn to the time of the token.
    turn_at = CASE WHEN row.turn_at > clock.now THEN clock.now ELSE row.turn_at END,
    writer = (SELECT xid FROM transaction)
FROM locked, clock
WHERE row.consumer_id = %(consumer_id)s::bigint
    AND row.key = locked.key
    -- Else a plan made while the table is empty may begin with all of it.
    AND row.key = ANY(ARRAY(SELECT key FROM locked))
