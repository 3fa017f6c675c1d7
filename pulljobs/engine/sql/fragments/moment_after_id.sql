-- Common table expression of a statement that makes jobs or keys available, with a transaction (xid) before it that has its id then.
-- The clock is read after that: claims rely on the order (low_water_marks.py). Gives moment (now).
moment AS MATERIALIZED (
    SELECT clock_timestamp() AS now
    FROM transaction
    WHERE xid IS NOT NULL
)
