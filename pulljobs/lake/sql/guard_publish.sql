-- Hold a bulk publish in this session. It is not abandoned while any session holds it.
-- Event: none.
-- Parameters: id bigint.
-- Returns: nothing.
-- Locks: the publish's advisory lock, shared, until the session ends. Index: none.
SELECT pg_advisory_lock_shared(hashtextextended('pulljobs_bulk_publish', %(id)s::bigint))
