-- Renumber the messages of a range of ids, after their database moved to another cluster: messages in the lake come before
-- the next window of the export, the others come into it. Besides it, only an erasure changes a message.
-- Events: none.
-- Parameters: low_id, high_id bigint, the second exclusive; exported bigint[] (ids of that range that the lake has);
--   low_xid bigint, where the next window begins; next_xid bigint, above all that have ended in this cluster.
-- Returns: changed bigint, the number of rows that it renumbered, and fresh bigint, of those that go to the lake.
-- Locks: the rows it changes. Index: primary key.
WITH exported AS MATERIALIZED (
    SELECT DISTINCT unnest(%(exported)s::bigint[]) AS id
),
wrong AS MATERIALIZED (
    SELECT message.id, exported.id IS NULL AS fresh
    FROM pulljobs_message AS message
    LEFT JOIN exported ON exported.id = message.id
    WHERE message.id >= %(low_id)s::bigint
        AND message.id < %(high_id)s::bigint
        AND CASE
            WHEN exported.id IS NULL
                THEN published_xid < %(low_xid)s::bigint OR published_xid >= %(next_xid)s::bigint
            ELSE published_xid >= %(low_xid)s::bigint
        END
),
changed AS (
    UPDATE pulljobs_message AS message
    SET published_xid = CASE WHEN fresh THEN pg_current_xact_id()::text::bigint ELSE 3 END
    FROM wrong
    WHERE message.id = wrong.id
    RETURNING fresh
)
SELECT count(*) AS changed, count(*) FILTER (WHERE fresh) AS fresh
FROM changed
