-- Common table expressions of a statement that makes jobs or keys available: the time, and before it the id of the transaction.
-- Claims rely on that order (low_water_marks.py). Gives transaction (xid) and clock (now).
transaction AS MATERIALIZED (
    SELECT pg_current_xact_id() AS xid
),
clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
    FROM transaction
    WHERE xid IS NOT NULL
)
