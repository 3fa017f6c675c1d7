-- Find abandoned staging tables: their publish is settled or deleted, or the process that began it is gone.
-- Event: none; they are dropped in the same transaction.
-- Parameters: patience interval (how long an unguarded publish may be untouched), gone text[] (drivers that are gone).
-- Returns: id of each publish.
-- Locks: the publish's row, skipping those at work, and its advisory lock, if no session holds it. Index: publish primary key.
WITH staged AS MATERIALIZED (
    SELECT substring(relname FROM '[0-9]+$')::bigint AS id
    FROM pg_class
    WHERE relname ~ '^pulljobs_staged_[0-9]+$'
        AND relkind = 'r'
        AND relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'pulljobs_bulk_publish'::regclass)
),
candidate AS MATERIALIZED (
    SELECT publish.id, state
    FROM pulljobs_bulk_publish AS publish
    JOIN staged ON staged.id = publish.id
    WHERE state <> 'open'
        OR guarded
        OR driver = ANY(%(gone)s::text[])
        OR touched_at < clock_timestamp() - %(patience)s::interval
    FOR UPDATE OF publish SKIP LOCKED
)
SELECT id
FROM staged
WHERE id NOT IN (SELECT id FROM pulljobs_bulk_publish)
UNION ALL
SELECT id
FROM candidate
WHERE pg_try_advisory_xact_lock(hashtextextended('pulljobs_bulk_publish', id))
