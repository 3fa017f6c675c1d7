-- Renumber the settlements of a range of ids, after their database moved to another cluster: settlements in the lake come
-- before the next window of the export, the others come into it. Besides it, only an erasure changes a settlement.
-- Events: none.
-- Parameters: low_id, high_id bigint, the second exclusive; exported bigint[] (ids of that range that the lake has);
--   low_xid bigint, where the next window begins; next_xid bigint, above all that have ended in this cluster.
-- Returns: changed bigint, the number of rows that it renumbered, and fresh bigint, of those that go to the lake.
-- Locks: the rows it changes. Index: primary key.
WITH exported AS MATERIALIZED (
    SELECT DISTINCT unnest(%(exported)s::bigint[]) AS id
),
wrong AS MATERIALIZED (
    SELECT archived.id, exported.id IS NULL AS fresh
    FROM pulljobs_archived_job AS archived
    LEFT JOIN exported ON exported.id = archived.id
    WHERE archived.id >= %(low_id)s::bigint
        AND archived.id < %(high_id)s::bigint
        AND CASE
            WHEN exported.id IS NULL
                THEN settled_xid < %(low_xid)s::bigint OR settled_xid >= %(next_xid)s::bigint
            ELSE settled_xid >= %(low_xid)s::bigint
        END
),
changed AS (
    UPDATE pulljobs_archived_job AS archived
    SET settled_xid = CASE WHEN fresh THEN pg_current_xact_id()::text::bigint ELSE 3 END
    FROM wrong
    WHERE archived.id = wrong.id
    RETURNING fresh
)
SELECT count(*) AS changed, count(*) FILTER (WHERE fresh) AS fresh
FROM changed
