-- Scan from the head of the index. The update goes through the ctid, which is stable: rows are locked.
WITH pick AS MATERIALIZED (
    SELECT ctid, id, message_id, available_at
    FROM raw_state
    WHERE consumer_id = %(consumer_id)s::bigint
        AND priority = 0
        AND available_at <= now()
        AND state = 0
    ORDER BY available_at, id
    LIMIT %(wanted)s::int
    FOR UPDATE SKIP LOCKED
),
claimed AS (
    UPDATE raw_state
    SET
        state = 1,
        lease_token = %(lease_token)s::uuid,
        claimed_at = clock_timestamp(),
        leased_until = clock_timestamp() + interval '30 s',
        deliveries = deliveries + 1
    WHERE ctid = ANY(ARRAY(SELECT ctid FROM pick))
)
SELECT id, available_at, message_id
FROM pick
